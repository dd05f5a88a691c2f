"""A compile as a row of stages: each reads what earlier ones left, by type, and leaves its own."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from optc.artifact.artifact import Artifact
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement, not_judged
from optc.compiling.recipes.recipe import Recipe
from optc.system.logs.logger import logger
from optc.system.options import CompileOptions
from optc.system.processes.process_memory import give_back_freed
from optc.system.progress import Progress
from optc.system.sources.steady import steady_so_far

_LOG = logger(__name__)
T = TypeVar("T")


@dataclass
class Done:
    """Everything that a compile is made with, and that its stages left.

    Attributes:
        progress: Told what goes on.
        started: When, by `time.perf_counter`.
        seconds: Of stages by name.
        warnings: What the user should know, in the order in which it was found.
        report: Sections of the report beside those of every compile.
        scratch: A folder for files that go with the compile.
    """

    progress: Progress
    started: float = field(default_factory=time.perf_counter)
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)
    scratch: Path = Path()
    _left: dict[type, object] = field(default_factory=dict)

    def leave(self, *results: object) -> Done:
        """Keep results, each as the one of its type and of the classes above; None is no result."""
        for one in results:
            kinds = type(one).__mro__[:-1] if one is not None else ()
            self._left |= dict.fromkeys(kinds, one)
        return self

    def __getitem__(self, kind: type[T]) -> T:
        return cast(T, self._left[kind])

    def get(self, kind: type[T]) -> T | None:
        """The result of that type, if there is one."""
        return cast("T | None", self._left.get(kind))

    def take(self, kind: type[T]) -> T:
        """The result of that type, which is not kept any longer."""
        return cast(T, self._left.pop(kind))

    def run(self, stages: Iterable[Stage]) -> None:
        """Run those that are wanted, in order."""
        for stage in stages:
            if stage.wanted(self):
                with self.timed(stage.name), steady_so_far():
                    self.leave(stage.run(self))

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Tell and time a stage."""
        self.progress(name, 0, 0)
        started = time.perf_counter()
        yield
        give_back_freed()  # the next stage may run in another process
        spent = time.perf_counter() - started
        self.seconds[name] = self.seconds.get(name, 0.0) + spent
        _LOG.info("%s took %.1f s", name, spent)


class Stage(ABC):
    """A step of a compile.

    Attributes:
        name: As users are told, and as its seconds are reported.
    """

    name: ClassVar[str]

    def wanted(self, done: Done) -> bool:
        """True if it has anything to do."""
        return True

    @abstractmethod
    def run(self, done: Done) -> object:
        """Do it; gives what it leaves, or None."""


class JudgeStage(Stage):
    """Base of stages that measure the gates of engines."""

    name: ClassVar[str] = "gates"

    def bounds(self, done: Done) -> Mapping[str, float | None]:
        """The gates that count."""
        return done[Recipe].gates


@dataclass(frozen=True)
class BuiltEngines:
    """Engines of an unfinished artifact, in order."""

    all: Sequence[BuiltEngine]

    @property
    def target(self) -> Sequence[BuiltEngine]:
        """Those of the model itself."""
        return [one for one in self.all if one.entry.role == TARGET]


@dataclass(frozen=True)
class Row:
    """The stages of a task: up to its engines, the one that judges these, and the last ones."""

    build: Sequence[Stage]
    judge: JudgeStage
    finish: Sequence[Stage]


@dataclass(frozen=True)
class Attempt:
    """A compile by one recipe, which may be one of several that are tried.

    Attributes:
        done: What its stages left.
        row: Its stages; the last one leaves an `Artifact`.
    """

    done: Done
    row: Row

    def build(self) -> None:
        """All stages up to the engines."""
        self.done.run(self.row.build)

    def judge(self) -> Judgement:
        """The gates, unless they are switched off."""
        if self.done[CompileOptions].no_gates:
            bounds = self.row.judge.bounds(self.done)
            self.done.leave(not_judged(bounds, self.done[BuiltEngines].target))
        else:
            self.done.run([self.row.judge])
        return self.done[Judgement]

    def finish(self, **more: Any) -> Artifact:
        """All stages behind the gates; ``more`` goes into the report.

        Raises:
            GateError: A gate failed.
        """
        self.done.report |= more
        self.done.run(self.row.finish)
        return self.done[Artifact]

    def run(self) -> Artifact:
        """All stages; raises as `finish`."""
        self.build()
        self.judge()
        return self.finish()

    @property
    def writer(self) -> ArtifactWriter:
        """Of the artifact, or of a folder of its own."""
        return self.done[ArtifactWriter]
