"""One compile of a model of named tensors: import, passes, build, gates, artifact."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TOKENIZER_FILE, EngineEntry, TokenizerEntry
from optc.artifact.store.local import store_root
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.artifact.writer import ArtifactWriter
from optc.backend import SharedWeights, TensorsBuilder
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import GatesFailedError
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.resolving.engines import EngineTarget, parse_engines
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import limit_of
from optc.compiling.tensors.assemble import assemble_manifest, assemble_report
from optc.compiling.tensors.calibration import Split, split_samples
from optc.compiling.tensors.judge import judge_tensors
from optc.compiling.tensors.samples import Tensors, random_samples, read_samples
from optc.compiling.tensors.sentences import sentence_samples
from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.open import import_tensors
from optc.ir.pipeline.instruments import dump_to
from optc.ir.pipeline.phase import Effect
from optc.proof.reference.tensor_samples import give_samples
from optc.runtime.tensors.classifier import IMAGES_FILE
from optc.runtime.tensors.texts import TEXTS_FILE
from optc.system.options import CompileOptions
from optc.system.progress import Progress, no_progress, telling
from optc.system.sources.tensor_source import TensorSource

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord

#: The recipe where none is named.
DEFAULT_RECIPE = "tensors-fp32"
#: Options of a compile that models of named tensors have, too.
_TAKEN = frozenset(
    {"recipe", "output", "backend", "target", "set", "gate", "calibration"}
    | {"no_gates", "force", "keep_failed", "max_ram", "dump_dir", "allow_unmeasured"}
)


def compile_tensors(
    source: TensorSource,
    samples: Sequence[Path | Tensors],
    asked: CompileOptions,
    progress: Progress = no_progress,
) -> Artifact:
    """Compile a model of named tensors into an artifact and prove it against its source.

    Args:
        source: The model.
        samples: Inputs to judge it by: files of NumPy (``.npz``), or arrays by name. None are the
            source's own example, or random ones, which a warning says.
        asked: Of its options those count that do not concern text.
        progress: Told what goes on.

    Raises:
        InputError: Bad usage, source, recipe, sample or output; nothing is left behind.
        UnsupportedError: Something in the model cannot be captured or lowered.
        UnavailableError: A package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
    """
    started = time.perf_counter()
    recipe = load_tensor_recipe(asked)
    engines = parse_engines(asked.backend, asked.target, recipe.backend)
    if recipe.otherwise and any(one.backend.name != recipe.backend for one in engines):
        recipe = _other(recipe, asked)
    output = asked.output or store_root() / f"{source.name}-{recipe.name}"
    limit = limit_of(asked.max_ram)
    with (
        PeakMemory(limit) as memory,
        ArtifactWriter(output, force=asked.force) as writer,
    ):
        compiling = _Compile(asked, recipe, engines, writer, memory, progress, started)
        return compiling.run(source, samples)


def load_tensor_recipe(
    asked: CompileOptions,
    tasks: Collection[str] = (TENSORS_NAME,),
    hint: str = f"such as {DEFAULT_RECIPE} or encoder-int8",
) -> Recipe:
    """The recipe that is asked for, of a model that is no decoder of text.

    Raises:
        InputError: An option concerns text, or the recipe is for another task than ``tasks``; then
            ``hint`` says what to do.
    """
    defaults = CompileOptions()
    for one in fields(CompileOptions):
        if one.name not in _TAKEN and getattr(asked, one.name) != getattr(defaults, one.name):
            raise InputError(
                "concerns decoders of text, and the model takes and gives named tensors",
                where=f"--{one.name.replace('_', '-')}",
                hint="leave it out",
            )
    recipe = load_recipe(asked.recipe, sets=asked.set, gates=asked.gate)
    if recipe.task not in tasks:
        raise InputError(
            f"the recipe {recipe.name!r} is for the task {recipe.task!r}",
            where="--recipe",
            hint=hint,
        )
    return recipe


def _other(recipe: Recipe, asked: CompileOptions) -> Recipe:
    """The recipe for what ``recipe`` does not take."""
    return load_recipe(recipe.otherwise, sets=asked.set, gates=asked.gate)


@dataclass
class _Compile:
    """The stages, in order, and what they leave for the report."""

    asked: CompileOptions
    recipe: Recipe
    engines: Sequence[EngineTarget]
    writer: ArtifactWriter
    memory: PeakMemory
    progress: Progress
    started: float
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, source: TensorSource, given: Sequence[Path | Tensors]) -> Artifact:
        """All stages; returns the written artifact."""
        with self._stage("import"):
            imported = import_tensors(source)
        warnings = list(imported.warnings)
        samples = read_samples(given, imported.interface, imported.images) or imported.samples
        if not samples and imported.tokenizer:
            samples = sentence_samples(imported.tokenizer, imported.interface, imported.task)
        if not samples:
            samples = random_samples(imported.interface)
            warnings.append(
                "the model is judged by random inputs: --inputs FILE.npz gives some such as it "
                "will get"
            )
        split = self._split(samples, imported)
        if self.recipe.pipeline.has(Effect.READS_SAMPLES):
            give_samples(imported.model, split.calibration)
            samples = split.judged
            if not split.apart:
                warnings.append(
                    "ranges are found with the inputs that it is judged by: --calibration FILE.npz "
                    "gives others, and 64 rows or more are divided"
                )
        original = imported.model.clone()
        with self._stage("passes"), telling(self.progress):
            try:
                runs = self._passes(imported.model)
            except UnsupportedError as error:
                if not self.recipe.otherwise or self.asked.backend:
                    raise
                warnings.append(self._turn(error))
                imported = replace(imported, model=original.clone())
                runs = self._passes(imported.model)
        with self._stage("build"):
            built = [self._build(imported, request) for request in self.engines]
        with self._stage("gates"):
            judgement = judge_tensors(
                self.recipe, imported, original, samples, built, self.writer, self.asked
            )
        return self._finish(imported, runs, built, judgement, warnings)

    def _passes(self, model: ir.Model) -> list[PassRecord]:
        dumps = [] if self.asked.dump_dir is None else [dump_to(self.asked.dump_dir)]
        return self.recipe.pipeline.run(model, dumps)

    def _turn(self, error: UnsupportedError) -> str:
        """Go on with the recipe's other one; what the user should know of that."""
        before, self.recipe = self.recipe.name, _other(self.recipe, self.asked)
        self.engines = parse_engines(None, self.asked.target, self.recipe.backend)
        return (
            f"recipe {before} does not take this model ({error.where}: {error.message}): "
            f"{self.recipe.name} does, and is what was compiled"
        )

    def _split(self, samples: Sequence[Tensors], imported: ImportedTensors) -> Split:
        given = [] if self.asked.calibration is None else [self.asked.calibration]
        calibration = read_samples(given, imported.interface, imported.images)
        return split_samples(samples, calibration, imported.interface)

    def _build(self, imported: ImportedTensors, request: EngineTarget) -> BuiltEngine:
        started, folder = time.perf_counter(), f"engines/{request.name}"
        if not isinstance(request.backend, TensorsBuilder):
            raise UnsupportedError(
                "builds no engines of models of named tensors",
                where=f"backend {request.backend.name}",
                hint="--backend onnxruntime does",
            )
        last = request is self.engines[-1]
        model = imported.model if last else imported.model.clone()
        place = self.writer.subfolder(folder)
        build = request.backend.build_tensors(model, imported.interface, request.target, place)
        entry = EngineEntry(
            name=request.name,
            role=TARGET,
            backend=request.backend.name,
            target=request.target,
            requires=build.requires,
            interface=build.spec,
            data=build.backend_data,
            folder=folder,
            files=build.files,
        )
        weights = SharedWeights(f"../{request.name}", build.backend_data)
        return BuiltEngine(request, entry, build, weights, time.perf_counter() - started)

    def _finish(
        self,
        imported: ImportedTensors,
        runs: Sequence[PassRecord],
        built: Sequence[BuiltEngine],
        judgement: Any,
        warnings: Sequence[str],
    ) -> Artifact:
        tokenizer = self._tokenizer(imported.tokenizer)
        if imported.images is not None:
            path = self.writer.subfolder("images").parent / IMAGES_FILE
            path.write_bytes(msgspec.json.encode(imported.images))
        if imported.scores is not None:
            path = self.writer.subfolder("texts").parent / TEXTS_FILE
            path.write_bytes(msgspec.json.encode(imported.scores))
        files = self.writer.hashed_files()
        copied = self.writer.store_once(files)
        entries = (files, tokenizer)
        manifest = assemble_manifest(self.recipe, imported, runs, built, judgement, *entries)
        self.memory.sample()
        self.seconds["total"] = time.perf_counter() - self.started
        report = assemble_report(built, runs, judgement, files, copied, self.seconds)
        report["peak_anon_bytes"] = self.memory.peak_bytes
        report["warnings"] = [*warnings, *_told(runs), *judgement.warnings]
        if judgement.failed:
            keep = self.asked.keep_failed
            kept = self.writer.keep_failed(manifest, report) if keep else None
            raise GatesFailedError(judgement, report, kept)
        return self.writer.commit(manifest, report)

    def _tokenizer(self, content: str) -> TokenizerEntry | None:
        """Write the tokenizer of a model of texts."""
        if not content:
            return None
        (self.writer.subfolder("tokenizer") / "tokenizer.json").write_text(content, "utf-8")
        return TokenizerEntry((TOKENIZER_FILE,), None, (), add_bos=False)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.progress(name, 0, 0)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def _told(runs: Sequence[PassRecord]) -> list[str]:
    found = [run.warning for run in runs if run.warning]
    return found + [f"pass {run.name}: {text}" for run in runs for text in run.report.warnings]
