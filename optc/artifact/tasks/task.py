"""A task: what a model is for. An artifact's manifest holds it, so that any reader can judge it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from optc.errors import InputError

#: What a `Measure` looks at; tasks may have others.
SPEED = "speed"
#: Role of the engine of the model itself, and of one whose results a decoder's steps attend to.
TARGET, ENCODER = "target", "encoder"


class Measure(Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of an engine that a recipe may bound: a gate.

    Attributes:
        name: As recipes and ``--gate`` call it; unique in its task.
        meaning: What it is, for readers of reports, with its unit.
        source: What it is measured on: the task's own word, or `SPEED`.
        upper: Whether a bound is the most that the value may be; else it is the least.
        ideal: The value of an engine that loses nothing, 0 or 1; None where the value says more of
            the samples, or of the machine, than of the engine.
    """

    name: str
    meaning: str
    source: str
    upper: bool
    ideal: Literal[0, 1] | None = None


class Task(Struct, frozen=True, forbid_unknown_fields=True):
    """The purpose of a model.

    Attributes:
        name: As in the entry point (``optc.tasks``).
        face: How a runtime shows an engine of it: ``text-generation``, ``tensors`` or another that
            the runtime knows.
        reference: What engines are compared with.
        roles: By each role that an engine of it may have, the type of the engine's interface
            (`optc.runtime.executable.interface`). ``target`` is the model itself.
        measures: All gates, in the order in which they are reported.
    """

    name: str
    face: str
    reference: str
    roles: dict[str, Literal["step", "tensors"]]
    measures: tuple[Measure, ...]

    def __post_init__(self) -> None:
        if len(self.by_name) != len(self.measures):
            raise ValueError(f"the task {self.name!r} has two measures of one name")

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of all measures, in order."""
        return tuple(one.name for one in self.measures)

    @property
    def by_name(self) -> Mapping[str, Measure]:
        """Every measure by its name."""
        return {one.name: one for one in self.measures}

    def of(self, *sources: str) -> tuple[str, ...]:
        """Names of the measures on these sources, in order."""
        return tuple(one.name for one in self.measures if one.source in sources)


def known_measures(tasks: Iterable[Task]) -> dict[str, Measure]:
    """The measures of all tasks by name.

    Raises:
        InputError: Two tasks have measures of one name whose bounds mean different things.
    """
    found: dict[str, Measure] = {}
    for task in tasks:
        for name, one in task.by_name.items():
            known = found.setdefault(name, one)
            if (known.upper, known.ideal) != (one.upper, one.ideal):
                raise InputError(
                    f"the measure {name!r} is another one in an installed task",
                    where=f"task {task.name!r}",
                    hint="rename it there, or uninstall the package of the task",
                )
    return found
