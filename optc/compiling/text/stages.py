"""The row of stages of generators of text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import Source, TokenizerEntry
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions
from optc.compiling.building.built_engine import TARGET, EngineBuilder
from optc.compiling.drafts.recurrences import check_recurrences
from optc.compiling.drafts.stages import DRAFTS, ImportDraft
from optc.compiling.judging.calibration_domain import DomainVerdict, judge_domain
from optc.compiling.judging.judge import Judgement, judge
from optc.compiling.lowering.lowering import Lowered, lower
from optc.compiling.recipes.recipe_additions import calibrates, trims
from optc.compiling.resolving.engines import EngineTarget
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import ResolvedOptions, build_limits
from optc.compiling.resolving.tensor_kinds import tensor_kinds
from optc.compiling.resolving.tokenizer import write_tokenizer
from optc.compiling.stages.generation import generation_settings
from optc.compiling.stages.row import BuiltEngines, Done, JudgeStage, Row, Stage
from optc.compiling.stages.shared import SharedWork
from optc.compiling.stages.storage import checkpoint_bytes, larger_than_source
from optc.compiling.stages.windows import windows_of
from optc.compiling.stages.write import Identity, PassRuns, Write
from optc.compiling.text.early import check_limits
from optc.compiling.text.left_out import left_out
from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from optc.system.hardware.target import usable_threads
from optc.system.progress import telling

if TYPE_CHECKING:
    from optc.compiling.vocabulary.trim import TrimmedVocabulary


class Download(Stage):
    """Weights that are not here."""

    name: ClassVar[str] = "download"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        return done[ResolvedOptions].hub is not None and done.get(SharedWork) is None

    def run(self, done: Done) -> None:
        """See `Stage`."""
        options = done[ResolvedOptions]
        if options.hub is not None:
            options.hub.fetch_weights(options.source, options.progress)


class Import(Stage):
    """The model, or a copy of what attempts share."""

    name: ClassVar[str] = "import"

    def run(self, done: Done) -> ImportedModel:
        """See `Stage`."""
        imported = self._imported(done)
        done.warnings += [*done[ResolvedOptions].warnings, *imported.warnings]
        source = Source(imported.name, imported.source_digest, imported.family, imported.config)
        defaults = generation_settings(imported).defaults
        size = checkpoint_bytes(imported.folder)
        done.leave(Identity(TEXT_GENERATION, source, defaults, size))
        return imported

    def _imported(self, done: Done) -> ImportedModel:
        if shared := done.get(SharedWork):
            return replace(shared.imported, model=shared.imported.model.clone())
        options = done[ResolvedOptions]
        with telling(options.progress):
            allowed = options.asked.allow_remote_code
            return importer.import_model(options.source, allow_remote_code=allowed)


class TrimVocabulary(Stage):
    """Leaves out tokens that the calibration text does not have."""

    name: ClassVar[str] = "vocabulary"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        return trims(done[ResolvedOptions].recipe)

    def run(self, done: Done) -> TrimmedVocabulary:
        """See `Stage`."""
        from optc.compiling.vocabulary.trim import trim_vocabulary

        options, imported = done[ResolvedOptions], done[ImportedModel]
        found = trim_vocabulary(options, imported, done.scratch)
        done.leave(found.options, found.options.recipe)
        done.report["vocabulary"] = found.to_json()
        return found


class Lower(Stage):
    """The recipe's passes, and checks that fail before the long stages begin."""

    name: ClassVar[str] = "passes"

    def run(self, done: Done) -> Lowered:
        """See `Stage`."""
        options, imported = done[ResolvedOptions], done[ImportedModel]
        limits = build_limits(options, imported.max_context)
        for option in ("self_draft", "medusa"):
            if getattr(options.asked, option) is not None:
                check_recurrences(imported.model, option)
        lowered = lower(imported.model, options)
        check_limits(options, lowered, done[ArtifactWriter], done[PeakMemory])
        done.warnings += lowered.warnings
        done.leave(limits, PassRuns(lowered.runs, lowered.spec))
        return lowered


class WriteTokenizer(Stage):
    """The artifact's tokenizer; chat templates that take no conversations are refused."""

    name: ClassVar[str] = "tokenizer"

    def run(self, done: Done) -> TokenizerEntry | None:
        """See `Stage`."""
        from optc.compiling.judging.judged_text import check_conversations

        folder, asked = done[ArtifactWriter].folder, done[ResolvedOptions].asked
        entry = self._write(done, folder)
        done.warnings += left_out(done[ImportedModel], folder, entry)
        if asked.eval_text is not None and not asked.no_gates:
            context = done[BuildOptions].max_context
            check_conversations(folder, entry, asked.eval_text, context)
        return entry

    def _write(self, done: Done, folder: Path) -> TokenizerEntry | None:
        from optc.compiling.vocabulary.trim import TrimmedVocabulary

        if vocabulary := done.get(TrimmedVocabulary):
            return vocabulary.write_tokenizer(folder)
        one, allowed = done[ImportedModel], done[ResolvedOptions].asked.allow_remote_code
        return write_tokenizer(
            one.folder, one.tokenizer_files, one.config, folder, allow_remote_code=allowed
        )


class JudgeCalibration(Stage):
    """Judges whether the calibration text is of the model's domain."""

    name: ClassVar[str] = "calibration text"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        return calibrates(done[ResolvedOptions].recipe) and done[Lowered].read_text

    def run(self, done: Done) -> None:
        """See `Stage`."""
        shared = done.get(SharedWork)
        found = None if shared is None else shared.domain
        if found is None:
            entry, folder = done.get(TokenizerEntry), done[ArtifactWriter].folder
            found = judge_domain(done[ResolvedOptions], done[Lowered].reference, entry, folder)
        if shared is not None:
            shared.domain = found
        done.warnings += found.warnings
        done.report["calibration"] = found.facts


class Build(Stage):
    """The target's engines."""

    name: ClassVar[str] = "build"

    def run(self, done: Done) -> BuiltEngines:
        """See `Stage`."""

        def limits_of(request: EngineTarget) -> BuildOptions:
            scratch = done.scratch / request.name
            scratch.mkdir()
            return replace(done[BuildOptions], scratch=scratch)

        builder = EngineBuilder(done[ArtifactWriter], done[ResolvedOptions].engines)
        with telling(done.progress):
            built = builder.build_all(TARGET, done[Lowered].model, limits_of)
        done.warnings += [text for one in built for text in one.build.warnings]
        done.warnings += larger_than_source(built, done[Identity].source_bytes)
        return BuiltEngines(built)


class CheckRanges(Stage):
    """Refuses engines in float16 of models whose values it cannot hold."""

    name: ClassVar[str] = "ranges"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        return bool(self._narrow(done)) and not done[ResolvedOptions].asked.no_gates

    def run(self, done: Done) -> None:
        """See `Stage`."""
        from optc.compiling.judging.float16_ranges import check_float16

        windows = windows_of(done).ids[:, :-1]
        check_float16(done[Lowered].reference, windows, self._narrow(done), usable_threads())

    def _narrow(self, done: Done) -> list[str]:
        built = done[BuiltEngines].all
        return [one.entry.name for one in built if one.build.computes_in == "float16"]


class Judge(JudgeStage):
    """The gates of the target's engines."""

    def run(self, done: Done) -> Judgement:
        """See `Stage`."""
        shared = done.get(SharedWork)
        return judge(
            done[ResolvedOptions],
            done[Lowered],
            done[BuiltEngines].all,
            done.get(TokenizerEntry),
            done[ArtifactWriter].folder,
            None if shared is None else shared.reference,
        )


class Bisect(Stage):
    """The pass, node and tensor where the divergence begins."""

    name: ClassVar[str] = "bisect"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        return done[ResolvedOptions].asked.bisect

    def run(self, done: Done) -> None:
        """See `Stage`."""
        from optc.compiling.judging.bisecting import bisect_passes

        gates, progress = done[Judgement].gates, done[ResolvedOptions].progress
        done.report["bisect"] = bisect_passes(done[Lowered], gates, windows_of(done), progress)


class WriteText(Write):
    """Writes the artifact of a generator of text."""

    def run(self, done: Done) -> Artifact:
        """See `Stage`."""
        done.report = {
            "evaluation": done[Judgement].facts,
            "tensors": tensor_kinds(done[Lowered].model),
            "calibration": DomainVerdict().facts,
            **done.report,
        }
        return super().run(done)

    def advice(self, done: Done) -> str:
        """See `Write`: a recipe that may hold."""
        from optc.compiling.ladder.next_rung import next_rung

        options, judgement = done[ResolvedOptions], done[Judgement]
        return next_rung(options, done[ImportedModel], done[Lowered].reference, judgement)


#: Stages that leave the model.
LOAD = (Download(), Import())
ROW = Row(
    (
        *(*LOAD, TrimVocabulary(), Lower(), WriteTokenizer(), ImportDraft()),
        *(JudgeCalibration(), Build(), CheckRanges()),
    ),
    Judge(),
    (*DRAFTS, Bisect(), WriteText()),
)
