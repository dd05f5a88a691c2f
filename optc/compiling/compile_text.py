"""One compile from start to end: import, passes, build, gates, artifact."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TokenizerEntry
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions
from optc.compiling.building.built_engine import TARGET, BuiltEngine, EngineBuilder
from optc.compiling.judging.calibration_domain import DomainVerdict, judge_domain
from optc.compiling.judging.judge import GatesFailedError, Judgement, judge, not_judged
from optc.compiling.recipes.recipe_additions import calibrates, trims
from optc.compiling.resolving.engines import EngineTarget
from optc.compiling.resolving.limits import check_start
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import (
    ResolvedOptions,
    build_limits,
    limit_of,
    resolve_options,
)
from optc.compiling.stages.assemble import assemble_manifest, assemble_report
from optc.compiling.stages.built_target import BuiltTarget
from optc.compiling.stages.shared import SharedWork
from optc.compiling.stages.storage import (
    checkpoint_bytes,
    engine_reports,
    larger_than_source,
    storage_report,
)
from optc.proof.reference.execution.device import check_device, running_on
from optc.system.logs.logger import logger
from optc.system.options import AUTO, CompileOptions
from optc.system.options.keywords import CompileChanges
from optc.system.options.option import with_changes
from optc.system.processes.process_memory import give_back_freed
from optc.system.progress import Progress, no_progress, telling

if TYPE_CHECKING:
    from optc.compiling.drafts.draft import Draft
    from optc.compiling.lowering.lowering import Lowered
    from optc.compiling.vocabulary.trim import TrimmedVocabulary
    from optc.importer.imported import ImportedModel
    from optc.proof.reference.text import EvalWindows

_LOG = logger(__name__)


def compile(
    model: str | Path,
    recipe: str | Path | None = None,
    output: str | Path | None = None,
    *,
    options: CompileOptions | None = None,
    progress: Progress = no_progress,
    **changes: Unpack[CompileChanges],
) -> Artifact:
    """Compile a Hugging Face folder into an artifact and prove it against the source.

    Args:
        model: Folder with config.json, safetensors and, usually, a tokenizer; or ``org/name`` or
            ``org/name@revision`` of the Hugging Face Hub.
        recipe, output: As in `CompileOptions`; here they need no name.
        options: What is asked for; None are the defaults.
        progress: Told what goes on.
        **changes: Fields of `CompileOptions` that differ from ``options``.

    Raises:
        InputError: Bad usage, model, recipe or output; nothing is left behind.
        UnsupportedError: Something in the model is not recognized or cannot be lowered.
        UnavailableError: A compiler or package is missing, or a device.
        GateError: A gate failed; its ``details`` hold what was measured.
        TypeError: There is no option of a name in ``changes``.
    """
    named = {"recipe": recipe, "output": output}
    stated = {name: value for name, value in named.items() if value is not None}
    asked = with_changes(options or CompileOptions(), {**changes, **stated})
    started = time.perf_counter()
    check_start(model, limit_of(asked.max_ram))
    check_device(asked.device, "calibrate and judge")
    with running_on(asked.device):
        if asked.recipe == AUTO:
            return _compile_auto(model, asked, progress, started)
        return _compile_one(model, asked, progress, started)


def _compile_one(
    model: str | Path, asked: CompileOptions, progress: Progress, started: float
) -> Artifact:
    """The artifact of the recipe that is named; ``started`` is when, by `time.perf_counter`. Raises
    as `compile`."""
    with telling(progress):
        resolved = resolve_options(model, asked, progress)
    with (
        PeakMemory(resolved.max_ram_bytes) as memory,
        ArtifactWriter(resolved.output, force=asked.force) as writer,
        writer.scratch() as scratch,
    ):
        return _Compile(resolved, writer, memory, scratch, started=started).run()


def _compile_auto(
    model: str | Path, asked: CompileOptions, progress: Progress, started: float
) -> Artifact:
    """The artifact of the best recipe that holds the gates; ``started`` is when, by
    `time.perf_counter`. Raises as `compile`."""
    from optc.compiling.ladder.climb import climb
    from optc.compiling.ladder.options import resolve_ladder

    with telling(progress):
        ladder = resolve_ladder(model, asked, progress)
    shared = SharedWork()
    with (
        PeakMemory(ladder.max_ram_bytes) as memory,
        ArtifactWriter(ladder.output, force=asked.force) as writer,
        writer.scratch() as scratch,
    ):

        def begin(options: ResolvedOptions, folder: Path) -> _Compile:
            return _Compile(options, writer.in_folder(folder / "artifact"), memory, folder, shared)

        return climb(ladder, shared, begin, writer, scratch)


@dataclass
class _Compile:
    """The stages, in order, and what they leave for the report."""

    options: ResolvedOptions
    writer: ArtifactWriter
    memory: PeakMemory
    scratch: Path
    shared: SharedWork = field(default_factory=SharedWork)
    seconds: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def run(self) -> Artifact:
        """All stages; returns the written artifact."""
        built = self.build()
        return self.finish(built, self.judge(built))

    def build(self) -> BuiltTarget:
        """All stages up to the target's engines."""
        known = self.shared.imported
        imported = self.load() if known is None else replace(known, model=known.model.clone())
        from optc.compiling.stages.early import check_limits
        from optc.compiling.stages.left_out import left_out

        vocabulary = self._trim(imported)
        limits = build_limits(self.options, imported.max_context)
        lowered = self._lower(imported)
        check_limits(self.options, lowered, self.writer, self.memory)
        tokenizer = self._tokenizer(imported, vocabulary)
        warnings = [*imported.warnings, *left_out(imported, self.writer.folder, tokenizer)]
        imported = replace(imported, warnings=warnings)
        self._check_conversations(limits, tokenizer)
        draft = self._import_draft(lowered, tokenizer)
        domain = self._judge_domain(lowered, tokenizer)
        engines = self._build(lowered, limits)
        self._check_ranges(lowered, engines, limits, tokenizer)
        return BuiltTarget(imported, vocabulary, limits, lowered, tokenizer, draft, domain, engines)

    def judge(self, built: BuiltTarget) -> Judgement:
        """The gates of the target's engines."""
        if self.options.asked.no_gates:
            return not_judged(self.options.recipe.gates, built.engines)
        with self.stage("gates"):
            folder, reference = self.writer.folder, self.shared.reference
            lowered, engines = built.lowered, built.engines
            return judge(self.options, lowered, engines, built.tokenizer, folder, reference)

    def finish(self, built: BuiltTarget, judgement: Judgement, **more: Any) -> Artifact:
        """All stages behind the gates; ``more`` goes into the report.

        Raises:
            GateError: A gate failed.
        """
        lowered, limits, tokenizer = built.lowered, built.limits, built.tokenizer
        drafts = self._drafts(built)
        bisection = self._bisect(lowered, judgement, limits, tokenizer)
        every = [*built.engines, *(one for draft in drafts for one in draft.engines)]
        files = self.writer.hashed_files()
        copied_bytes = self.writer.store_once(files)
        manifest = assemble_manifest(
            self.options, built.imported, lowered, every, tokenizer, judgement, files
        )
        self.memory.sample()
        self.seconds["total"] = time.perf_counter() - self.started
        report = assemble_report(
            self.options,
            built.imported,
            lowered,
            every,
            drafts,
            judgement,
            self.seconds,
            self.memory.peak_bytes,
        )
        report["calibration"] = built.domain.facts
        report["warnings"] += built.domain.warnings
        report["engines"] = engine_reports(every, files)
        source_bytes = checkpoint_bytes(built.imported.folder)
        report["warnings"] += larger_than_source(built.engines, source_bytes)
        report["storage"] = storage_report(every, files, copied_bytes, source_bytes)
        report |= {} if bisection is None else {"bisect": bisection}
        report |= {} if built.vocabulary is None else {"vocabulary": built.vocabulary.to_json()}
        report |= more
        if judgement.failed:
            keep = self.options.asked.keep_failed
            kept = self.writer.keep_failed(manifest, report) if keep else None
            from optc.compiling.ladder.next_rung import next_rung

            likely = next_rung(self.options, built, judgement)
            raise GatesFailedError(judgement, report, kept, likely)
        return self.writer.commit(manifest, report)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Name and time a stage."""
        self.options.progress(name, 0, 0)
        started = time.perf_counter()
        yield
        give_back_freed()  # the next stage may run in another process
        self.seconds[name] = time.perf_counter() - started
        _LOG.info("%s took %.1f s", name, self.seconds[name])

    def load(self) -> ImportedModel:
        """The model; its weights are downloaded if they are not here."""
        if self.options.hub is not None:
            with self.stage("download"):
                self.options.hub.fetch_weights(self.options.source, self.options.progress)
        with self.stage("import"), telling(self.options.progress):
            from optc.importer.import_model import import_model

            return import_model(
                self.options.source, allow_remote_code=self.options.asked.allow_remote_code
            )

    def _lower(self, imported: ImportedModel) -> Lowered:
        with self.stage("passes"):
            from optc.compiling.lowering.lowering import lower

            return lower(imported.model, self.options)

    def _trim(self, imported: ImportedModel) -> TrimmedVocabulary | None:
        if not trims(self.options.recipe):
            return None
        with self.stage("vocabulary"):
            from optc.compiling.vocabulary.trim import trim_vocabulary

            found = trim_vocabulary(self.options, imported, self.scratch)
        self.options = found.options
        return found

    def _tokenizer(
        self, imported: ImportedModel, vocabulary: TrimmedVocabulary | None
    ) -> TokenizerEntry | None:
        if vocabulary is not None:
            return vocabulary.write_tokenizer(self.writer.folder)
        from optc.compiling.resolving.tokenizer import write_tokenizer

        return write_tokenizer(
            imported.folder,
            imported.tokenizer_files,
            imported.config,
            self.writer.folder,
            allow_remote_code=self.options.asked.allow_remote_code,
        )

    def _check_conversations(self, limits: BuildOptions, tokenizer: TokenizerEntry | None) -> None:
        """Refuse conversations that the chat template does not take before the long stages."""
        if self.options.asked.eval_text is None or self.options.asked.no_gates:
            return
        from optc.compiling.judging.judged_text import check_conversations

        text = self.options.asked.eval_text
        check_conversations(self.writer.folder, tokenizer, text, limits.max_context)

    def _import_draft(
        self, lowered: Lowered, tokenizer: TokenizerEntry | None
    ) -> ImportedModel | None:
        """The draft model, so that one that does not suit is refused before the long stages."""
        if self.options.asked.draft is None:
            return None
        with self.stage("import draft"):
            from optc.compiling.drafts.draft import import_draft

            return import_draft(self.options, self.writer, lowered, tokenizer)

    def _build(self, lowered: Lowered, limits: BuildOptions) -> list[BuiltEngine]:
        def limits_of(request: EngineTarget) -> BuildOptions:
            scratch = self.scratch / request.name
            scratch.mkdir()
            return replace(limits, scratch=scratch)

        with self.stage("build"), telling(self.options.progress):
            builder = EngineBuilder(self.writer, self.options.engines)
            return builder.build_all(TARGET, lowered.model, limits_of)

    def _drafts(self, built: BuiltTarget) -> list[Draft]:
        from optc.compiling.drafts.build_all import Drafting, build_drafts

        drafting = Drafting(
            self.options,
            self.writer,
            self.scratch,
            built.lowered,
            built.engines,
            built.limits,
            built.tokenizer,
            self.stage,
        )
        return build_drafts(drafting, built.draft)

    def _judge_domain(self, lowered: Lowered, tokenizer: TokenizerEntry | None) -> DomainVerdict:
        if not calibrates(self.options.recipe) or not lowered.read_text:
            return DomainVerdict()
        if self.shared.domain is None:
            with self.stage("calibration text"):
                folder = self.writer.folder
                found = judge_domain(self.options, lowered.reference, tokenizer, folder)
            self.shared.domain = found
        return self.shared.domain

    def _check_ranges(
        self,
        lowered: Lowered,
        engines: list[BuiltEngine],
        limits: BuildOptions,
        tokenizer: TokenizerEntry | None,
    ) -> None:
        """Refuse engines in float16 of models whose values it cannot hold."""
        narrow = [e.entry.name for e in engines if e.build.computes_in == "float16"]
        if self.options.asked.no_gates or not narrow:
            return
        with self.stage("ranges"):
            from optc.compiling.judging.float16_ranges import check_float16
            from optc.system.hardware.target import usable_threads

            windows = self._windows(lowered, limits, tokenizer).ids[:, :-1]
            check_float16(lowered.reference, windows, narrow, usable_threads())

    def _bisect(
        self,
        lowered: Lowered,
        judgement: Judgement,
        limits: BuildOptions,
        tokenizer: TokenizerEntry | None,
    ) -> dict[str, Any] | None:
        if not self.options.asked.bisect:
            return None
        with self.stage("bisect"):
            from optc.compiling.judging.bisecting import bisect_passes

            windows = self._windows(lowered, limits, tokenizer)
            return bisect_passes(lowered, judgement.gates, windows, self.options.progress)

    def _windows(
        self, lowered: Lowered, limits: BuildOptions, tokenizer: TokenizerEntry | None
    ) -> EvalWindows:
        from optc.compiling.judging.text_windows import text_windows

        text, folder = self.options.asked.eval_text, self.writer.folder
        return text_windows(lowered.reference, limits.max_context, tokenizer, folder, text)
