"""Climbs a ladder: tries recipes until the best one that holds is known, and finishes that one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.artifact.artifact import Artifact
from optc.artifact.writer import ArtifactWriter
from optc.compiling.judging.gates_text import gates_text
from optc.compiling.judging.judge import Judgement
from optc.compiling.ladder.options import LadderOptions
from optc.compiling.ladder.predict import Predictions, predict_rungs
from optc.compiling.ladder.record import NoRungHeldError, ladder_json
from optc.compiling.ladder.rungs import Rung
from optc.compiling.ladder.search import Search, Trial, values_of
from optc.compiling.recipes.recipe_additions import with_calibration_cache
from optc.compiling.resolving.options import ResolvedOptions
from optc.compiling.stages.row import Attempt, BuiltEngines
from optc.compiling.stages.shared import SharedWork
from optc.compiling.stages.windows import windows_of
from optc.errors import InputError
from optc.system.logs.logger import logger
from optc.system.processes.process_memory import give_back_freed

if TYPE_CHECKING:
    from optc.proof.reference.text import EvalWindows

_LOG = logger(__name__)


#: Begins an attempt with a scratch folder of its own, in which it writes.
Begin = Callable[[ResolvedOptions, Path], Attempt]


@dataclass
class _Kept:
    """An attempt that held, while others that may be better are tried."""

    attempt: Attempt
    folder: Path


def climb(
    options: LadderOptions,
    shared: SharedWork,
    begin: Begin,
    writer: ArtifactWriter,
    scratch: Path,
) -> Artifact:
    """The artifact of the best recipe that holds.

    Args:
        options: Of the ladder.
        shared: What attempts have in common; here it gets the reference.
        begin: Makes an attempt.
        writer: Of the artifact.
        scratch: For files of attempts.

    Raises:
        GateError: No recipe holds; nothing is left behind.
        InputError: No recipe suits the model.
    """
    started = time.perf_counter()
    cached = [_with_cache(one, scratch / "calibrations") for one in options.compiles]
    options = replace(options, compiles=tuple(cached))
    predictions = predict_rungs(shared.imported, options)
    from optc.proof.reference.blockwise import BlockwiseReference
    from optc.system.hardware.target import usable_threads

    shared.reference = BlockwiseReference(predictions.dense, usable_threads())
    try:
        climber = _Climber(options, predictions, shared, begin, writer, scratch)
        return climber.run(started)
    finally:
        shared.reference.close()


@dataclass
class _Climber:
    options: LadderOptions
    predictions: Predictions
    shared: SharedWork
    begin: Begin
    writer: ArtifactWriter
    scratch: Path
    kept: _Kept | None = None
    refusals: list[InputError] = field(default_factory=list)

    def run(self, started: float) -> Artifact:
        search = Search(self.predictions.rungs, self.options.bounds)
        search.run(self._timed)
        ladder = ladder_json(self.options, self.predictions, search)
        if self.kept is None:
            if len(self.refusals) == len(search.trials):  # nothing was measured at all
                raise self.refusals[0]
            raise NoRungHeldError(ladder, search, time.perf_counter() - started)
        return finished(self.kept.attempt, self.writer, ladder)

    def _timed(self, rung: Rung) -> Trial:
        began = time.perf_counter()
        trial = replace(self._try(rung), seconds=time.perf_counter() - began)
        verdict = "held" if trial.held else f"fell: {trial.why}"
        _LOG.info("%s %s (%.1f s)", rung.recipe, verdict, trial.seconds)
        return trial

    def _try(self, rung: Rung) -> Trial:
        own = next(o for o in self.options.compiles if o.recipe.name == rung.recipe)
        folder = self.scratch / f"rung-{rung.recipe}"
        folder.mkdir()
        attempt = self.begin(replace(own, progress=partial(_named, own, rung.recipe)), folder)
        try:
            attempt.build()
        except InputError as error:
            self.refusals.append(error)
            clear(folder)
            return Trial(False, why=error.render())
        windows = windows_of(attempt.done)
        trial = self._few(attempt, windows)
        if trial is None:
            judgement = attempt.judge()
            trial = trial_of(judgement, len(windows.ids))
            if trial.held:
                self._keep(_Kept(attempt, folder))
                return trial
        clear(folder)
        return trial

    def _few(self, attempt: Attempt, windows: EvalWindows) -> Trial | None:
        """The trial of a rung that falls on few windows; None where all have to tell."""
        from optc.compiling.ladder.few_windows import FEW, lost_on_few, measure_few

        reference = self.shared.reference
        if reference is None:
            return None
        entry, folder = attempt.done[BuiltEngines].all[0].entry, attempt.writer.folder
        values = measure_few(entry, folder, reference, windows, self.options.progress)
        failed = lost_on_few(values, self.options.bounds)
        if not failed:
            return None
        texts = [f"{name} {values[name]:.3g} of {FEW} windows" for name in failed]
        return Trial(False, values, failed, FEW, why=", ".join(texts))

    def _keep(self, kept: _Kept) -> None:
        """Keep what held; what held before is no better, and goes."""
        if self.kept is not None:
            clear(self.kept.folder)
        self.kept = kept


def trial_of(judgement: Judgement, windows: int) -> Trial:
    """The trial of a rung by its judgement over so many windows of text.

    Raises:
        InputError: No gate could be measured.
    """
    failed = judgement.failed
    several = len({gate.engine for gate in judgement.gates}) > 1
    judged = [
        gate for gate in judgement.gates if gate.bound is not None and gate.passed is not None
    ]
    if not judged and not failed:
        raise InputError(
            "no gate could be measured on this machine, and recipes are chosen by their gates",
            where="--recipe auto",
            hint="name a recipe",
        )
    return Trial(
        not failed,
        values_of(judgement.gates),
        tuple(dict.fromkeys(gate.name for gate in failed)),
        windows,
        gates_text(failed, several),
    )


def _named(options: ResolvedOptions, recipe: str, stage: str, done: int, total: int) -> None:
    """Progress of an attempt, with the recipe before the stage."""
    options.progress(f"{recipe}: {stage}", done, total)


def _with_cache(options: ResolvedOptions, folder: Path) -> ResolvedOptions:
    """The options whose calibrations are kept while the ladder is climbed, where no other cache is
    named: recipes that calibrate alike do it once."""
    return replace(options, recipe=with_calibration_cache(options.recipe, folder))


def clear(folder: Path) -> None:
    """Remove what an attempt wrote."""
    shutil.rmtree(folder, ignore_errors=True)
    give_back_freed()


def finished(attempt: Attempt, writer: ArtifactWriter, ladder: dict[str, Any]) -> Artifact:
    """The artifact of the attempt that was chosen, moved into its place, with the ladder in its
    report."""
    for path in attempt.writer.folder.iterdir():
        path.rename(writer.folder / path.name)
    attempt.done.leave(writer)
    return attempt.finish(ladder=ladder)
