"""Passes, backends and recipes by name, found through entry points.

The core never imports them: no arrow leaves it (docs/architecture.md).
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

from optc.backend import Backend
from optc.errors import InputError

if TYPE_CHECKING:  # a pass imports onnx_ir, which the runtime must not need
    from optc.pipeline.base import Pass


@cache
def pass_groups() -> dict[str, tuple[type[Pass], ...]]:
    """The pass classes of every group, in the order of its module's ``PASSES``."""
    points = sorted(entry_points(group="optc.passes"), key=lambda p: p.name)
    return {point.name: tuple(point.load().PASSES) for point in points}


@cache
def passes() -> dict[str, type[Pass]]:
    """Every pass class by name."""
    return {p.name: p for group in pass_groups().values() for p in group}


@cache
def backend_names() -> tuple[str, ...]:
    """Names of all installed backends."""
    return tuple(sorted(point.name for point in entry_points(group="optc.backends")))


@cache
def backend(name: str) -> Backend:
    """The backend called ``name``.

    Raises:
        InputError: No such backend; the message lists those that exist.
    """
    for point in entry_points(group="optc.backends"):
        if point.name == name:
            loaded: Backend = point.load()
            return loaded
    raise InputError(
        f"unknown backend {name!r}", where="backend", hint=f"one of {', '.join(backend_names())}"
    )


@cache
def recipe_files() -> dict[str, Traversable]:
    """The shipped recipes' YAML files by name."""
    found: dict[str, Traversable] = {}
    for point in entry_points(group="optc.recipes"):
        for entry in files(point.value).iterdir():
            if entry.name.endswith(".yaml"):
                found[entry.name.removesuffix(".yaml")] = entry
    return dict(sorted(found.items()))
