"""Drafts made of the target by a cheaper recipe: compiled, measured against it, chosen.

The weights of a trained model rounded to two or three bits say little less than the model at most
places, and need no training; what pruning leaves can be trained. They share tokenizer and
vocabulary with it by construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc import registry
from optc.artifact.manifest import TokenizerEntry
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import BuiltEngine, EngineBuilder
from optc.compiling.drafts.distilled import distill_draft
from optc.compiling.drafts.draft import ROLE, Draft, draft_limits
from optc.compiling.drafts.shared_kv import means_the_same, sharing
from optc.compiling.lowering.lowering import Lowered, lower_again
from optc.compiling.resolving.draft_recipes import DraftCandidate
from optc.compiling.resolving.draft_spec import PREFIX
from optc.compiling.resolving.limits import check_disk
from optc.compiling.resolving.options import ResolvedOptions
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import usable_threads

if TYPE_CHECKING:  # measures with the gates
    from optc.compiling.drafts.predicted_gain import GreedyTexts, Prediction
    from optc.runtime.executable.executable import Executable


@dataclass(frozen=True)
class _Made:
    """A candidate that was compiled.

    Attributes:
        candidate: What it is.
        engines: For each target engine one.
        shelf: Folder where theirs lie, by name.
        facts: For the report.
        warnings: One sentence each.
        prediction: None where nothing was measured.
    """

    candidate: DraftCandidate
    engines: tuple[BuiltEngine, ...]
    shelf: Path
    facts: dict[str, Any]
    warnings: tuple[str, ...]
    prediction: Prediction | None = None

    @property
    def gain(self) -> float:
        return 0.0 if self.prediction is None else self.prediction.gain


@dataclass
class DraftMaker:
    """Makes one draft of the target, for each target engine one.

    They are not gated: the target verifies every token that they draft.

    Attributes:
        options: Of the compile.
        writer: Of the artifact.
        scratch: Where engines lie while they are measured: at paths of their own, for a process
            loads one library of a path.
        lowered: The target.
        targets: Its engines.
        tokenizer: The target's.
    """

    options: ResolvedOptions
    writer: ArtifactWriter
    scratch: Path
    lowered: Lowered
    targets: Sequence[BuiltEngine]
    tokenizer: TokenizerEntry | None
    _texts: GreedyTexts | None = field(default=None, init=False)

    def make(self) -> Draft:
        """Compile the candidates; of several the one that is predicted to gain most stays, if it
        gains enough.

        Raises:
            InputError: The text to train on cannot be used.
            UnsupportedError: Something cannot be lowered.
            UnavailableError: An engine cannot be loaded, although the machine fits; or a training
                died.
        """
        tried = [self._make(candidate) for candidate in self.options.candidates]
        best = max(tried, key=lambda one: one.gain)
        if len(tried) == 1:
            self._put_back(best)
            return Draft(ROLE, best.engines, best.facts, (*best.warnings, *_doubt(best)))
        facts = {"candidates": [{k: one.facts[k] for k in ("spec", "prediction")} for one in tried]}
        if best.prediction is None or not best.prediction.pays:
            return Draft(ROLE, (), facts, (f"no draft: of self:auto, {_best(best)}",))
        self._put_back(best)
        return Draft(ROLE, best.engines, best.facts | facts, best.warnings)

    def _make(self, candidate: DraftCandidate) -> _Made:
        distilled = None
        recipe = candidate.recipe
        if candidate.spec.distill is not None:
            distilled = distill_draft(candidate, self.options, self.scratch)
            recipe = distilled.recipe
        options = replace(self.options.for_draft(), recipe=recipe)
        model = self.lowered.reference.clone()
        lowered = lower_again(model, options)
        check_disk(lowered.model, self.writer)
        limits = draft_limits(options, self.targets, self.targets[0].entry.spec.max_context)
        builder = EngineBuilder(self.writer, options.engines)
        engines = builder.build_all(ROLE, model, lambda request: limits)
        if means_the_same(self.options.recipe, recipe):
            engines = sharing(engines, self.targets)
        facts: dict[str, Any] = {
            "spec": candidate.spec.text,
            "recipe": candidate.recipe.name,
            "passes": [run.to_json() for run in lowered.runs],
        }
        facts |= {"distilled": distilled.figures} if distilled is not None else {}
        shelf = self.scratch / f"draft-{candidate.spec.text.removeprefix(PREFIX)}"
        shelf.mkdir()
        for built in engines:
            (self.writer.folder / built.entry.folder).rename(shelf / built.entry.name)
        prediction, reason = self._predict(engines, shelf)
        facts["prediction"] = None if prediction is None else prediction.to_json()
        facts |= {"not_measured": reason} if reason else {}
        said = (*(() if distilled is None else distilled.warnings), *lowered.warnings)
        warnings = tuple(f"draft {candidate.spec.text}: {text}" for text in said)
        return _Made(candidate, tuple(engines), shelf, facts, warnings, prediction)

    def _put_back(self, made: _Made) -> None:
        for built in made.engines:
            (made.shelf / built.entry.name).rename(self.writer.folder / built.entry.folder)

    def _predict(self, drafts: Sequence[BuiltEngine], shelf: Path) -> tuple[Prediction | None, str]:
        """By the first target engine that runs here; or why nothing was measured."""
        if self.options.asked.no_gates and len(self.options.candidates) == 1:
            return None, "the gates were switched off"
        running = [i for i, one in enumerate(self.targets) if not _misfit(one)]
        if not running:
            return None, f"no engine runs here: {_misfit(self.targets[0])}"
        from optc.compiling.drafts.predicted_gain import draft_cost, predict_gain, verify_costs

        target, draft = self.targets[running[0]], drafts[running[0]]
        texts = self._greedy_texts(target)
        with ExitStack() as loaded:
            owner = None
            if draft.entry.spec.shared_kv:  # closed behind the draft, which uses its pools
                folder = self.writer.folder / target.entry.folder
                owner = loaded.enter_context(_loaded(target, folder))
            engine = loaded.enter_context(_loaded(draft, shelf / draft.entry.name))
            agreement = texts.named_by(engine, owner)
        cost = draft_cost(target, draft, [*self.targets, *drafts])
        return predict_gain(agreement, cost, verify_costs(target)), ""

    def _greedy_texts(self, target: BuiltEngine) -> GreedyTexts:
        """The target's greedy texts, made once for all candidates."""
        if self._texts is None:
            from optc.compiling.drafts.predicted_gain import GreedyTexts
            from optc.compiling.judging.text_windows import text_windows

            windows = text_windows(
                self.lowered.reference,
                target.entry.spec.max_context,
                self.tokenizer,
                self.writer.folder,
                self.options.asked.eval_text,
            )
            with _loaded(target, self.writer.folder / target.entry.folder) as engine:
                self._texts = GreedyTexts.of(engine, windows.ids)
        return self._texts


@contextmanager
def _loaded(built: BuiltEngine, folder: Path) -> Iterator[Executable]:
    entry, backend = built.entry, registry.step_backend(built.entry.backend)
    engine = backend.load(folder, entry.spec, entry.data, usable_threads())
    try:
        yield engine
    finally:
        engine.close()


def _misfit(built: BuiltEngine) -> str:
    entry = built.entry
    return registry.step_backend(entry.backend).can_load(entry, this_machine())


def _doubt(made: _Made) -> tuple[str, ...]:
    """Warnings about a draft that was wanted and hardly pays."""
    if made.prediction is None or made.prediction.pays:
        return ()
    return (f"the draft may not pay: {_best(made)}",)


def _best(made: _Made) -> str:
    if made.prediction is None:
        return f"nothing was measured: {made.facts['not_measured']}"
    return f"{made.candidate.spec.text} is predicted to give {made.prediction}"
