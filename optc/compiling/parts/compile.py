"""One compile of a model of several parts: by one recipe, or by the best that holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TokenizerEntry
from optc.artifact.store.local import store_root
from optc.artifact.tasks.task import ENCODER, Task
from optc.artifact.writer import ArtifactWriter
from optc.backend import TensorsBuilder
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement
from optc.compiling.ladder.measured.climb import MeasuredClimber
from optc.compiling.ladder.measured.options import check_gates, resolve_measured
from optc.compiling.ladder.members import Member
from optc.compiling.parts.graph import Lowered, lower_encoder, lower_graph
from optc.compiling.parts.step import StepPart, lower_steps, with_interfaces
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.engines import EngineTarget, parse_engines
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import limit_of
from optc.compiling.tensors.assemble import Identity
from optc.compiling.tensors.compile import check_taken, load_member, load_tensor_recipe
from optc.compiling.tensors.stages import Stages
from optc.errors import UnsupportedError
from optc.ir.pipeline.phase import Effect
from optc.proof.reference.tensor_samples import samples_of
from optc.system.options import AUTO, CompileOptions
from optc.system.progress import Progress, telling

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord

#: Verdicts on built engines by a recipe's gates; the graphs as they were imported, by role, are for
#: a baseline.
JudgeParts = Callable[
    [Recipe, ArtifactWriter, CompileOptions, Mapping[str, ir.Model], Sequence[BuiltEngine]],
    Judgement,
]


@dataclass(frozen=True)
class Parts:
    """An imported model.

    Attributes:
        task: What it is for.
        name: Of the model.
        digest: sha256 in hex of all graphs and their weights.
        graphs: By role of the engine.
        judge: Measures the gates.
        write: Puts the artifact's other files in place; gives the tokenizer's entry, if it has one.
        warnings: What the user should know.
        calibrate: Gives the graphs samples, for passes that learn from some; None where there are
            none.
        step: The engine of the role ``target`` as a decoder of steps, if it can be one.
    """

    task: Task
    name: str
    digest: str
    graphs: Mapping[str, ImportedTensors]
    judge: JudgeParts
    write: Callable[[ArtifactWriter], TokenizerEntry | None]
    warnings: tuple[str, ...] = ()
    calibrate: Callable[[], None] | None = None
    step: StepPart | None = None


def compile_parts(
    asked: CompileOptions,
    task: Task,
    name: str,
    hint: str,
    load: Callable[[], Parts],
    progress: Progress,
) -> Artifact:
    """Compile a model of several parts into an artifact and prove it against its source.

    Args:
        asked: Of its options those count that do not concern text.
        task: What such models are for.
        name: Of the model, for the artifact's folder.
        hint: Which recipes there are.
        load: Imports the model.
        progress: Told what goes on.

    Raises:
        InputError: Bad usage, recipe or output, or what ``load`` raises; nothing is left behind.
        UnsupportedError: Something in the model cannot be lowered.
        UnavailableError: A package is missing.
        GateError: A gate failed; its ``details`` hold what was measured.
    """
    started = time.perf_counter()
    check_taken(asked)
    check_gates(asked.gate, task)
    recipe = None if asked.recipe == AUTO else load_tensor_recipe(asked, (task.name,), hint)
    ladder = resolve_measured(asked, task.name, task) if recipe is None else None
    engines = () if recipe is None else tensor_engines(asked, recipe)
    output = asked.output or store_root() / f"{name}-{AUTO if recipe is None else recipe.name}"
    with (
        PeakMemory(limit_of(asked.max_ram)) as memory,
        ArtifactWriter(output, force=asked.force) as writer,
    ):
        progress("import", 0, 0)
        begun = time.perf_counter()
        parts = load()
        seconds = {"import": time.perf_counter() - begun}
        if recipe is not None:
            stages = Stages(asked, recipe, engines, writer, memory, progress, started, seconds)
            attempt = PartsAttempt(stages, parts)
            attempt.build()
            attempt.judge()
            return attempt.finish()

        def begin(member: Member, own: ArtifactWriter, told: Progress) -> PartsAttempt:
            chosen = load_member(member)
            found = tensor_engines(asked, chosen)
            times = dict(seconds)
            stages = Stages(member.asked, chosen, found, own, memory, told, started, times)
            return PartsAttempt(stages, parts)

        if ladder is None:
            raise RuntimeError("a recipe or a ladder was asked for")
        with writer.scratch() as scratch:
            return MeasuredClimber(ladder, begin, writer, scratch, progress).run()


def tensor_engines(asked: CompileOptions, recipe: Recipe) -> Sequence[EngineTarget]:
    """The engines that are asked for.

    Raises:
        UnsupportedError: A backend builds none of named tensors.
    """
    engines = parse_engines(asked.backend, asked.target, recipe.backend)
    for one in engines:
        if not isinstance(one.backend, TensorsBuilder):
            raise UnsupportedError(
                "builds no engines of named tensors",
                where=f"backend {one.backend.name}",
                hint="--backend onnxruntime does",
            )
    return engines


@dataclass
class PartsAttempt:
    """The stages behind the import, in order, and what they leave for the report.

    Args:
        stages: Of this recipe.
        parts: The model, whose graphs stay as they are.
    """

    stages: Stages
    parts: Parts
    runs: Sequence[PassRecord] = ()
    built: Sequence[BuiltEngine] = ()
    _originals: dict[str, ir.Model] = field(default_factory=dict)
    _judgement: Judgement | None = None
    _warnings: list[str] = field(default_factory=list)

    @property
    def writer(self) -> ArtifactWriter:
        """Of the artifact, or of a folder of its own."""
        return self.stages.writer

    @writer.setter
    def writer(self, other: ArtifactWriter) -> None:
        self.stages.writer = other

    def build(self) -> None:
        """Calibration, passes and engines."""
        parts = self.parts
        self._originals = {role: one.model.clone() for role, one in parts.graphs.items()}
        with self.stages.timed("passes"), telling(self.stages.progress):
            own = {role: self._own(role, one) for role, one in parts.graphs.items()}
        if None in own.values():
            self._calibrate()
        with self.stages.timed("passes"), telling(self.stages.progress):
            lowered = [
                own[role] or lower_graph(self.stages, one, parts.task, role)
                for role, one in parts.graphs.items()
            ]
            self.runs = [run for one in lowered for run in one.runs]
        with self.stages.timed("build"):
            self.built = [
                one.build(self.stages, request)
                for request in self.stages.engines
                for one in lowered
            ]

    def _own(self, role: str, graph: ImportedTensors) -> Lowered | None:
        """A half by the recipe's part for it; None where ``pipeline`` is for it."""
        if role == TARGET:
            return lower_steps(self.stages, self.parts.step, self._warnings)
        if role == ENCODER:
            return lower_encoder(self.stages, graph, role, self._warnings)
        return None

    def _calibrate(self) -> None:
        """Give the graphs samples, if passes of the recipe's own pipeline learn from some."""
        parts, learns = self.parts, self.stages.recipe.pipeline.has(Effect.READS_SAMPLES)
        known = all(samples_of(one.model) for one in parts.graphs.values())
        if parts.calibrate is not None and learns and not known:
            with self.stages.timed("calibration"):
                parts.calibrate()

    def judge(self) -> Judgement:
        """The gates of all engines."""
        stages = self.stages
        with stages.timed("gates"):
            self._judgement = self.parts.judge(
                stages.recipe, self.writer, stages.asked, self._originals, self.built
            )
        return self._judgement

    def finish(self, **more: Any) -> Artifact:
        """The artifact, with ``more`` in its report; raises as `Stages.commit`."""
        if self._judgement is None:
            raise RuntimeError("nothing is judged yet")
        parts = self.parts
        tokenizer = parts.write(self.writer)
        task = with_interfaces(parts.task, [one.entry for one in self.built])
        identity = Identity(parts.name, parts.digest, task, task.name)
        warnings = (*parts.warnings, *self._warnings)
        made = (self.runs, self.built, self._judgement, warnings)
        return self.stages.commit(identity, tokenizer, *made, **more)
