"""Backends, tasks and recipes by name, found through entry points.

Passes are found in `optc.pipeline.registry`. The core never imports passes and
backends: no arrow leaves it (docs/architecture.md).
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from typing import TYPE_CHECKING

from optc.errors import InputError

if TYPE_CHECKING:  # backends bring NumPy, which takes longer than most commands
    from importlib.resources.abc import Traversable

    from optc.backend import Backend
    from optc.tasks.task import Measure, Task


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
def tasks() -> dict[str, Task]:
    """All installed tasks by name."""
    found: dict[str, Task] = {}
    for point in sorted(entry_points(group="optc.tasks"), key=lambda point: point.name):
        found[point.name] = point.load()
    return found


@cache
def measures() -> dict[str, Measure]:
    """The measures of all installed tasks by name: all gates that there are."""
    from optc.tasks.task import known_measures

    return known_measures(tasks().values())


@cache
def recipe_files() -> dict[str, Traversable]:
    """The shipped recipes' YAML files by name."""
    found: dict[str, Traversable] = {}
    for point in entry_points(group="optc.recipes"):
        for entry in files(point.value).iterdir():
            if entry.name.endswith(".yaml"):
                found[entry.name.removesuffix(".yaml")] = entry
    return dict(sorted(found.items()))
