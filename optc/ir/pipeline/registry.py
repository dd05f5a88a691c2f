"""Passes by name, found through entry points.

Beside `optc.registry`, which the runtime reads: passes need the graph of a model, the runtime not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points

from optc.errors import InputError
from optc.ir.forms.form import Form
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.option_values import shortened
from optc.ir.pipeline.phase import Effect
from optc.registry import load_point
from optc.system.suggest import near


@cache
def pass_groups() -> dict[str, tuple[type[Pass], ...]]:
    """The pass classes of every group, in the order of its module's ``PASSES``.

    Raises:
        UnavailableError: A package of passes that is installed beside optc cannot be imported.
    """
    points = sorted(entry_points(group="optc.passes"), key=lambda p: p.name)
    return {point.name: load_point(point, lambda module: tuple(module.PASSES)) for point in points}


@cache
def passes() -> dict[str, type[Pass]]:
    """Every pass class by name; raises as `pass_groups` does."""
    return {p.name: p for group in pass_groups().values() for p in group}


def named(name: str) -> type[Pass]:
    """The pass class of a name.

    Raises:
        InputError: There is none; names the nearest.
    """
    known = passes()
    if name not in known:
        raise InputError(
            f"unknown pass {shortened(name)}", where="passes", hint=near(name, tuple(known))
        )
    return known[name]


def added_by(option: str) -> type[Pass]:
    """The pass that an option of a compile adds to recipes.

    Args:
        option: As of `Pass.added_by`.

    Raises:
        InputError: Several packages have such a pass, or none has.
    """
    found = [one for one in passes().values() if one.added_by == option]
    if len(found) == 1:
        return found[0]
    names = ", ".join(one.name for one in found) or "none"
    raise InputError(
        f"the option adds one pass to the recipe, and there are: {names}",
        where=option,
        hint="uninstall the package that adds another" if found else "install optc again",
    )


def leading_to(form: type[Form]) -> type[Pass]:
    """The pass that makes a model of this form of one of another form: optc's own, where other
    packages have one, too.

    Raises:
        InputError: There is none.
    """
    return _own(lambda one: one.gives is form and form not in one.takes, f"leads to {form.title}")


def having(effect: Effect) -> type[Pass]:
    """The pass with an effect that one has: optc's own, where other packages have one, too.

    Raises:
        InputError: There is none.
    """
    return _own(lambda one: one.has(effect), f"has the effect {effect.name}")


def _own(wanted: Callable[[type[Pass]], bool], kind: str) -> type[Pass]:
    found = [one for one in passes().values() if wanted(one)]
    if not found:
        raise InputError(f"no pass {kind}", where="passes", hint="install optc again")
    return min(found, key=lambda one: not one.__module__.startswith("optc."))
