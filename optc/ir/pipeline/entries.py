"""Pipelines from entries as recipes have them: a pass, a pass with options, or a group.

An entry is a name, or a mapping of one name to its options. Beside the options of the pass there
are the marks ``optional`` and ``required``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from optc.errors import InputError
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.option_values import read_value, shortened
from optc.ir.pipeline.pipeline import MARKS, Pipeline
from optc.system.suggest import nearest


class Registry(Protocol):
    """The registry that names are looked up in; the module `optc.ir.pipeline.registry` is one."""

    def passes(self) -> dict[str, type[Pass]]:
        """Pass classes by name."""
        ...

    def pass_groups(self) -> Mapping[str, Sequence[type[Pass]]]:
        """Pass classes of each group, in running order."""
        ...


def read_pipeline(
    entries: Iterable[object], registry: Registry, where: str = "pipeline"
) -> Pipeline:
    """The pipeline that entries describe; its order is not checked (`Pipeline.validate`).

    Raises:
        InputError: An entry that is none, an unknown name, or an option that the pass does not
            take; names ``where``.
    """
    passes: list[Pass] = []
    marked: dict[str, set[str]] = {mark: set() for mark in MARKS}
    for name, options in (_split(entry, where) for entry in entries):
        for member, own in _members(name, options, registry, where):
            passes.append(member.from_options({k: v for k, v in own.items() if k not in MARKS}))
            for mark in MARKS:
                if read_mark(member.name, mark, own.get(mark, False)):
                    marked[mark].add(member.name)
    return Pipeline(tuple(passes), *(frozenset(marked[mark]) for mark in MARKS))


def with_options(pipeline: Pipeline, changes: Mapping[str, object], where: str) -> Pipeline:
    """The pipeline with other options or marks of passes that it runs.

    Args:
        pipeline: Unchanged.
        changes: Values by ``pass.option``; those of a pass are set together.
        where: For messages.

    Raises:
        InputError: The pipeline does not run the pass, or the pass does not take the option.
    """
    by_pass: dict[str, dict[str, object]] = {}
    for key, value in changes.items():
        name, _, option = key.partition(".")
        by_pass.setdefault(name, {})[option] = value
    for name, options in by_pass.items():
        pipeline = _with_options_of(pipeline, name, options, where)
    return pipeline


def _with_options_of(
    pipeline: Pipeline, name: str, options: Mapping[str, object], where: str
) -> Pipeline:
    names = [one.name for one in pipeline.passes]
    if name not in names:
        raise InputError(
            f"the recipe does not run the pass {name!r}",
            where=where,
            hint=f"its passes: {', '.join(names)}",
        )
    own = {key: value for key, value in options.items() if key not in MARKS}
    marks: dict[str, frozenset[str]] = {}
    for mark in MARKS:
        if mark in options:
            given: frozenset[str] = getattr(pipeline, mark)
            is_set = read_mark(name, mark, options[mark])
            marks[mark] = given | {name} if is_set else given - {name}
    passes = tuple(one.with_options(own) if one.name == name else one for one in pipeline.passes)
    return replace(pipeline, passes=passes, **marks)


def check_pass(name: str, registry: Registry, where: str) -> None:
    """Check that a pass has this name.

    Raises:
        InputError: None has; the hint says which is near, or lists them all.
    """
    known = list(registry.passes())
    if name in known:
        return
    groups = [group for group in registry.pass_groups() if group not in known]
    if name in groups:
        members = ", ".join(member.name for member in registry.pass_groups()[name])
        raise InputError(
            f"{name!r} is a group of passes", where=where, hint=f"name one of them: {members}"
        )
    found = nearest(name, [*known, *groups])
    lists = f"passes: {', '.join(known)}; groups: {', '.join(groups)}"
    raise InputError(
        f"unknown pass {shortened(name)}",
        where=where,
        hint=f"did you mean {found!r}?" if found else lists,
    )


def read_mark(name: str, mark: str, value: object) -> bool:
    """True if a mark is set on the pass ``name``.

    Raises:
        InputError: It is neither true nor false.
    """
    try:
        return bool(read_value(bool, value))
    except (KeyError, ValueError) as error:
        raise InputError(
            f"option {mark}={shortened(value)} is neither true nor false", where=f"pass {name}"
        ) from error


def _split(entry: object, where: str) -> tuple[str, dict[Any, object]]:
    name, options = entry, dict[Any, object]()
    if isinstance(entry, dict) and len(entry) == 1:
        name, given = next(iter(entry.items()))
        options = {} if given is None else given
    if isinstance(name, str) and isinstance(options, dict):
        return name, options
    raise InputError(
        f"{shortened(entry)} is no pipeline entry",
        where=where,
        hint="write 'pass' or 'pass: {…}'",
    )


def _members(
    name: str, options: dict[Any, object], registry: Registry, where: str
) -> list[tuple[type[Pass], dict[Any, object]]]:
    """The pass, or every pass of the group, unless a pass bears its name."""
    groups = registry.pass_groups()
    if name in groups and name not in registry.passes():
        if options:
            raise InputError(
                f"the group {name!r} takes no options", where=where, hint="list its passes"
            )
        return [(member, {}) for member in groups[name]]
    check_pass(name, registry, where)
    return [(registry.passes()[name], options)]
