"""Climbs a ladder by measurements: builds and judges every recipe, and finishes the best one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from optc.artifact.writer import ArtifactWriter
from optc.compiling.ladder.climb import clear, finished, trial_of
from optc.compiling.ladder.measured.options import MeasuredLadder
from optc.compiling.ladder.members import Member
from optc.compiling.ladder.record import NoRungHeldError
from optc.compiling.ladder.rungs import Prediction, Rung
from optc.compiling.ladder.search import Search, Trial
from optc.compiling.stages.row import Attempt
from optc.errors import InputError
from optc.system.logs.logger import logger
from optc.system.progress import Progress

_LOG = logger(__name__)
#: Speeds that differ by less are equal; then the smaller artifact is the better one.
_STEP = 1.03
_UNKNOWN = Prediction(None, None, None, 0, 0)


#: Begins an attempt: a recipe, the writer of its folder, and whom to tell what goes on.
Begin = Callable[[Member, ArtifactWriter, Progress], Attempt]


@dataclass(frozen=True)
class _Held:
    """An attempt whose gates held."""

    recipe: str
    attempt: Attempt
    folder: Path
    speed: float | None
    bytes: int


@dataclass
class MeasuredClimber:
    """Tries recipes one after the other; of what holds, the best one stays on the disk.

    Args:
        ladder: What is asked for.
        begin: Makes an attempt; like its build it may refuse the model.
        writer: Of the artifact.
        scratch: For folders of attempts.
        progress: Told what goes on.
    """

    ladder: MeasuredLadder
    begin: Begin
    writer: ArtifactWriter
    scratch: Path
    progress: Progress
    trials: dict[str, Trial] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, InputError] = field(default_factory=dict)
    kept: _Held | None = None
    _engines: dict[tuple[str, ...], str] = field(default_factory=dict)

    def run(self) -> Artifact:
        """The artifact of the best recipe that holds.

        Raises:
            GateError: No recipe holds; nothing is left behind.
            InputError: No recipe takes the model, or an input is none.
        """
        started = time.perf_counter()
        for member in self.ladder.members:
            began = time.perf_counter()
            trial = self._try(member)
            if trial is not None:
                spent = time.perf_counter() - began
                self.trials[member.recipe.name] = replace(trial, seconds=spent)
                verdict = "held" if trial.held else f"fell: {trial.why}"
                _LOG.info("%s %s (%.1f s)", member.recipe.name, verdict, spent)
        if not self.trials:
            raise next(iter(self.refusals.values()))
        if self.kept is None:
            search = Search(self._rungs(), self.ladder.bounds, self.trials)
            raise NoRungHeldError(self.to_json(), search, time.perf_counter() - started)
        return finished(self.kept.attempt, self.writer, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The ladder as reports have it: as `optc.compiling.ladder.record.ladder_json`, with what
        was ``measured`` in the place of predictions. Of what held, the best one stands first."""
        chosen = None if self.kept is None else self.kept.recipe
        rungs = [self._rung_json(member) for member in self._ordered()]
        refused = [
            {"recipe": name, "outcome": "left out", "why": error.render()}
            for name, error in self.refusals.items()
        ]
        return {
            "objective": self.ladder.objective,
            "gates": dict(self.ladder.bounds),
            "default_gates": self.ladder.default_bounds,
            "chosen": chosen,
            "rungs": [*rungs, *refused],
        }

    def _try(self, member: Member) -> Trial | None:
        """None where the recipe does not take the model."""
        name = member.recipe.name
        folder = self.scratch / f"rung-{name}"
        try:
            attempt = self.begin(member, self.writer.in_folder(folder), partial(self._named, name))
            attempt.build()
        except InputError as error:
            self.refusals[name] = error
            clear(folder)
            return None
        files = attempt.writer.hashed_files()
        self.bytes[name] = sum({one.sha256: one.bytes for one in files}.values())
        engine = tuple(f"{one.path} {one.sha256}" for one in files)
        known = self._engines.setdefault(engine, name)
        if known != name:
            self.same[name] = known
            clear(folder)
            return self.trials[known]
        judgement = attempt.judge()
        trial = trial_of(judgement, 0)
        if not trial.held:
            clear(folder)
            return trial
        speed = trial.values.get(self.ladder.speed)
        held = _Held(name, attempt, folder, speed, self.bytes[name])
        if self.kept is not None and not self._better(held, self.kept):
            clear(folder)
            return trial
        if self.kept is not None:
            clear(self.kept.folder)
        self.kept = held
        return trial

    def _better(self, one: _Held, other: _Held) -> bool:
        if self.ladder.objective == "speed" and one.speed and other.speed:
            if one.speed > _STEP * other.speed:
                return True
            if other.speed > _STEP * one.speed:
                return False
        return one.bytes < other.bytes

    def _ordered(self) -> list[Member]:
        """Members that were tried: the chosen one, those that held by speed, and what fell."""

        def place(member: Member) -> tuple[bool, bool, float]:
            name = member.recipe.name
            trial = self.trials[name]
            chosen = self.kept is not None and name == self.kept.recipe
            speed = trial.values.get(self.ladder.speed, 0.0)
            amount = -speed if self.ladder.objective == "speed" else float(self.bytes[name])
            return not chosen, not trial.held, amount

        tried = [one for one in self.ladder.members if one.recipe.name in self.trials]
        return sorted(tried, key=place)

    def _rung_json(self, member: Member) -> dict[str, Any]:
        name, trial = member.recipe.name, self.trials[member.recipe.name]
        outcome, why = self._outcome(name, trial)
        return {
            "recipe": name,
            "description": member.recipe.description,
            "promised": dict(self.ladder.promised(member)),
            "measured": {
                "speed": trial.values.get(self.ladder.speed),
                "artifact_bytes": self.bytes[name],
            },
            "outcome": outcome,
            "why": why,
            "values": dict(trial.values),
            "seconds": trial.seconds,
        }

    def _outcome(self, name: str, trial: Trial) -> tuple[str, str]:
        if name in self.same:
            return "skipped", f"its engine is that of {self.same[name]}"
        if not trial.held:
            return "fell", trial.why
        if self.kept is not None and name == self.kept.recipe:
            return "chosen", ""
        return "held", "a better one held, too"

    def _rungs(self) -> list[Rung]:
        return [
            Rung(one.recipe.name, one.recipe.description, _UNKNOWN, self.ladder.promised(one))
            for one in self.ladder.members
        ]

    def _named(self, recipe: str, stage: str, done: int, total: int) -> None:
        """Progress of an attempt, with the recipe before the stage."""
        self.progress(f"{recipe}: {stage}", done, total)
