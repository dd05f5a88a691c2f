"""Backends, tasks and recipes by name, found through entry points.

Passes are found in `optc.ir.pipeline.registry`. The core never imports passes and
backends: no arrow leaves it (docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from optc.errors import InputError, UnavailableError

if TYPE_CHECKING:  # backends bring NumPy, which takes longer than most commands
    from importlib.metadata import EntryPoints, SelectableGroups
    from importlib.resources.abc import Traversable

    from optc.artifact.tasks.task import Measure, Task
    from optc.backend import Backend, StepBackend


@cache
def _installed() -> EntryPoints | SelectableGroups:
    """Every entry point of this environment, whose metadata are read once."""
    return entry_points()


def _points(group: str) -> list[EntryPoint]:
    """The entry points of a group, sorted by name."""
    return sorted(_installed().select(group=group), key=lambda point: point.name)


@cache
def backend_names() -> tuple[str, ...]:
    """Names of all installed backends."""
    return tuple(point.name for point in _points("optc.backends"))


@cache
def backend(name: str) -> Backend:
    """The backend called ``name``.

    Raises:
        InputError: No such backend; the message lists those that exist.
        UnavailableError: It is of another package, which cannot be imported.
    """
    for point in _points("optc.backends"):
        if point.name == name:
            loaded: Backend = load_point(point)
            return loaded
    raise InputError(
        f"unknown backend {name!r}", where="backend", hint=f"one of {', '.join(backend_names())}"
    )


def step_backend(name: str) -> StepBackend:
    """The backend called ``name``, of an engine whose interface is a ragged step: it has built one.

    Raises: as `backend`.
    """
    return cast("StepBackend", backend(name))


@cache
def tasks() -> dict[str, Task]:
    """All installed tasks by name.

    Raises:
        UnavailableError: One is of another package, which cannot be imported.
    """
    return {point.name: load_point(point) for point in _points("optc.tasks")}


@cache
def measures() -> dict[str, Measure]:
    """The measures of all installed tasks by name: all gates that there are.

    Raises:
        InputError: Two tasks have measures of one name whose bounds mean different things.
    """
    from optc.artifact.tasks.task import known_measures

    return known_measures(tasks().values())


@cache
def recipe_files() -> dict[str, Traversable]:
    """The shipped recipes' YAML files by name."""
    found: dict[str, Traversable] = {}
    for point in _points("optc.recipes"):
        for entry in files(point.value).iterdir():
            if entry.name.endswith(".yaml"):
                found[entry.name.removesuffix(".yaml")] = entry
    return dict(sorted(found.items()))


def load_point(point: EntryPoint, read: Callable[[Any], Any] = lambda found: found) -> Any:
    """The part that ``read`` takes of the module or object of an entry point.

    Raises:
        UnavailableError: It is of another package, which cannot be imported or lacks that.
    """
    try:
        return read(point.load())
    except Exception as error:  # a package may raise anything while it is imported
        package = "optc" if point.dist is None else point.dist.name
        if package == "optc":
            raise
        what = point.group.partition(".")[2].replace("_", " ")
        raise UnavailableError(
            f"the {what} of the package {package!r} cannot be loaded: "
            f"{type(error).__name__}: {error}",
            where=f"entry point {point.name} = {point.value}",
            hint=f"install another release of it, or: pip uninstall {package}",
        ) from error
