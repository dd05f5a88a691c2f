"""One compile from start to end: import, passes, build, gates, artifact."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from optc.artifact import Artifact, ArtifactWriter, TokenizerEntry
from optc.backend import BuildOptions
from optc.driver.compiling.assemble import assemble_manifest, assemble_report
from optc.driver.compiling.built import TARGET, Built, EngineBuilder, weight_copies
from optc.driver.compiling.engines import EngineRequest
from optc.driver.compiling.memory import PeakMemory
from optc.driver.compiling.options import Auto, CompileOptions, build_limits, resolve_options
from optc.driver.compiling.storage import engine_reports, storage_report
from optc.driver.judging.judge import GatesFailedError, Judgement, judge, not_judged
from optc.progress import Progress, no_progress

if TYPE_CHECKING:
    from optc.driver.compiling.lowering import Lowered
    from optc.driver.drafts.draft import Draft
    from optc.importer import ImportedModel


def compile(
    model: str | Path,
    recipe: str | Path = "int8-fused",
    output: str | Path | None = None,
    *,
    backend: str | Sequence[str] | None = None,
    target: str | None = None,
    set: Iterable[str] = (),
    gate: Iterable[str] = (),
    calibration: str | Path | None = None,
    eval_text: str | Path | None = None,
    max_ram: str | int | None = None,
    max_context: int | None = None,
    draft: str | Path | None = None,
    self_draft: int | Auto | None = None,
    no_gates: bool = False,
    allow_unmeasured: bool = False,
    keep_failed: bool = False,
    dump_dir: str | Path | None = None,
    force: bool = False,
    allow_remote_code: bool = False,
    adapters: str | None = None,
    medusa: str | Path | None = None,
    tune: bool = False,
    schedules: str | Path | None = None,
    progress: Progress = no_progress,
) -> Artifact:
    """Compile a Hugging Face folder into an artifact and prove it against the source.

    Args:
        model: Folder with config.json, safetensors and, usually, a tokenizer.
        recipe: Name of a shipped recipe, or path of a YAML file.
        output: Folder to write; None is ``artifacts/<model>-<recipe>``.
        backend: Instead of the recipe's: ``BACKEND`` or ``BACKEND:TARGET``; a sequence of them
            gives as many engines in one artifact, of which `optc.load` picks.
        target: Of backends that name none: ``native`` (the default), or a name that
            `optc.target.known_targets` gives.
        set: Overrides ``pass.option=value``.
        gate: Overrides ``name=bound``; the bound ``none`` reports without judging.
        calibration: Text for passes that calibrate.
        eval_text: Text for the gates (``.jsonl`` or plain); None is the shipped one.
        max_ram: Most anonymous and shared memory of all processes together (``"3GB"`` or bytes);
            a compile that is predicted to need more is refused before its long stages, and one
            that takes more all the same is stopped.
        max_context: Longest sequence in tokens; None is the model's own, within 32,768.
        draft: Folder of a smaller model with the same tokenizer, which drafts tokens for this one
            (``optc.load(..., speculate="draft")``); compiled with the same recipe.
        self_draft: Also build an engine of so many of the model's first layers and its head, on
            the same weights, which drafts tokens (``optc.load(..., speculate="self")``); ``"auto"``
            chooses how many by the gates' text, or builds none and warns if no number pays.
        no_gates: Measure nothing; the artifact is marked as ungated.
        allow_unmeasured: Let gates through that cannot be measured on this machine.
        keep_failed: Keep a result that failed its gates as ``<output>.failed``.
        dump_dir: Write the graph after every pass here, as ONNX text without weights.
        force: Replace an artifact at ``output``, once the new one is complete.
        allow_remote_code: Run Python code that the model folder brings.
        adapters: Room for LoRA adapters at run time: ``max=8,rank=16``.
        medusa: Folder of Medusa heads for this model (``examples/training/train_medusa.py`` trains
            them), which draft tokens with ``optc.load(..., speculate="medusa")``.
        tune: Measure kernel schedules for the model's shapes on this machine, at most a minute an
            engine, keep them in ``schedules`` and use them; they change speed, never results.
        schedules: File of kernel schedules to use; None is none but the package's, or with ``tune``
            the one in the user's cache folder.
        progress: Told what goes on.

    Raises:
        InputError: Bad usage, model, recipe or output; nothing is left behind.
        UnsupportedError: Something in the model is not recognized or cannot be lowered.
        UnavailableError: A compiler or package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
    """
    options = resolve_options(
        model,
        recipe,
        output,
        backend=backend,
        target=target,
        set=set,
        gate=gate,
        calibration=calibration,
        eval_text=eval_text,
        max_ram=max_ram,
        max_context=max_context,
        draft=draft,
        self_draft=self_draft,
        no_gates=no_gates,
        allow_unmeasured=allow_unmeasured,
        keep_failed=keep_failed,
        dump_dir=dump_dir,
        force=force,
        allow_remote_code=allow_remote_code,
        adapters=adapters,
        medusa=medusa,
        tune=tune,
        schedules=schedules,
        progress=progress,
    )
    with (
        PeakMemory(options.max_ram_bytes) as memory,
        ArtifactWriter(options.output, force=force) as writer,
        writer.scratch() as scratch,
    ):
        return _Compile(options, writer, memory, scratch).run()


@dataclass
class _Compile:
    """The stages, in order, and what they leave for the report."""

    options: CompileOptions
    writer: ArtifactWriter
    memory: PeakMemory
    scratch: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> Artifact:
        """All stages; returns the written artifact."""
        started = time.perf_counter()
        imported = self._import()
        limits = build_limits(self.options, imported.max_context)
        lowered = self._lower(imported)
        self._check_limits(lowered)
        tokenizer = self._tokenizer(imported)
        draft = self._import_draft(lowered, tokenizer)
        engines = self._build(lowered, limits)
        drafts = self._drafts(draft, lowered, engines, limits, tokenizer)
        judgement = self._judge(lowered, engines, tokenizer)
        every = [*engines, *(built for draft in drafts for built in draft.engines)]
        files = self.writer.hashed_files()
        copied_bytes = self.writer.store_once(files)
        manifest = assemble_manifest(
            self.options, imported, lowered, every, tokenizer, judgement, files
        )
        self.memory.sample()
        self.seconds["total"] = time.perf_counter() - started
        report = assemble_report(
            self.options,
            imported,
            lowered,
            every,
            drafts,
            judgement,
            self.seconds,
            self.memory.peak_bytes,
        )
        report["engines"] = engine_reports(every, files)
        report["storage"] = storage_report(every, files, copied_bytes)
        if judgement.failed:
            kept = self.writer.keep_failed(manifest, report) if self.options.keep_failed else None
            raise GatesFailedError(judgement, report, kept)
        return self.writer.commit(manifest, report)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.options.progress(name, 0, 0)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started

    def _import(self) -> ImportedModel:
        with self._stage("import"):
            from optc.importer import import_model

            return import_model(
                self.options.source, allow_remote_code=self.options.allow_remote_code
            )

    def _lower(self, imported: ImportedModel) -> Lowered:
        with self._stage("passes"):
            from optc.driver.compiling.lowering import lower

            return lower(imported.model, self.options)

    def _check_limits(self, lowered: Lowered) -> None:
        """Refuse before the long stages what would fail in or behind them."""
        from optc.driver.compiling.limits import check_disk, check_memory
        from optc.driver.drafts.layer_skip import divided

        if isinstance(self.options.self_draft, int):
            divided(lowered.reference, self.options.self_draft)

        check_disk(lowered.model, self.writer, weight_copies(self.options.engines))
        check_memory(
            lowered.reference,
            self.memory.sample(),
            self.options.max_ram_bytes,
            gated=self.options.gated,
            tuned=self.options.tune,
        )

    def _tokenizer(self, imported: ImportedModel) -> TokenizerEntry | None:
        from optc.driver.compiling.tokenizer import write_tokenizer

        return write_tokenizer(
            imported.folder,
            imported.tokenizer_files,
            imported.config,
            self.writer.folder,
            allow_remote_code=self.options.allow_remote_code,
        )

    def _import_draft(
        self, lowered: Lowered, tokenizer: TokenizerEntry | None
    ) -> ImportedModel | None:
        """The draft model, so that one that does not suit is refused before the long stages."""
        if self.options.draft is None:
            return None
        with self._stage("import draft"):
            from optc.driver.drafts.draft import import_draft
            from optc.ir.graph import width

            vocabulary = width(lowered.model.graph.outputs[0])
            return import_draft(
                self.options, self.options.draft, self.writer, tokenizer, vocabulary
            )

    def _build(self, lowered: Lowered, limits: BuildOptions) -> list[Built]:
        def limits_of(request: EngineRequest) -> BuildOptions:
            scratch = self.scratch / request.name
            scratch.mkdir()
            return replace(limits, scratch=scratch)

        with self._stage("build"):
            builder = EngineBuilder(self.writer, self.options.engines)
            return builder.build_all(TARGET, lowered.model, limits_of)

    def _drafts(
        self,
        draft: ImportedModel | None,
        lowered: Lowered,
        engines: list[Built],
        limits: BuildOptions,
        tokenizer: TokenizerEntry | None,
    ) -> list[Draft]:
        options, writer = self.options, self.writer
        drafts: list[Draft] = []
        if draft is not None:
            with self._stage("draft"):
                from optc.driver.drafts.draft import build_draft

                drafts.append(build_draft(options, draft, writer, engines))
        if options.self_draft is not None:
            with self._stage("self-draft"):
                from optc.driver.drafts.self_draft import build_self_draft

                wanted = options.self_draft
                drafts.append(
                    build_self_draft(options, wanted, writer, lowered, engines, limits, tokenizer)
                )
        return drafts

    def _judge(
        self,
        lowered: Lowered,
        engines: list[Built],
        tokenizer: TokenizerEntry | None,
    ) -> Judgement:
        if not self.options.gated:
            return not_judged(self.options.recipe.gates, engines)
        with self._stage("gates"):
            return judge(self.options, lowered, engines, tokenizer, self.writer.folder)
