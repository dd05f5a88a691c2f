"""The row of stages of models of named tensors, from imported graphs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import Source
from optc.artifact.tasks.task import ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET
from optc.compiling.judging.judge import Judgement
from optc.compiling.parts.graph import Lowered, LoweredGraph, lower_encoder
from optc.compiling.parts.judging import Bounds, measure_parts
from optc.compiling.parts.options import PartsOptions
from optc.compiling.parts.parts import Parts
from optc.compiling.parts.size import folder_bytes, larger_than_source, model_bytes
from optc.compiling.parts.step import lower_steps, with_interfaces
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.stages.row import BuiltEngines, Done, JudgeStage, Row, Stage
from optc.compiling.stages.write import Identity, PassRuns, Write
from optc.errors import UnsupportedError
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.pipeline.record import warnings_of
from optc.proof.gates.measure import is_open
from optc.system.options import CompileOptions
from optc.system.progress import telling

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.importer.tensors.imported import ImportedTensors


@dataclass(frozen=True)
class OwnParts:
    """Halves by the recipe's parts for them; None are for its own pipeline."""

    by_role: Mapping[str, Lowered | None]


@dataclass(frozen=True)
class LoweredParts:
    """All graphs behind their passes."""

    all: Sequence[Lowered]


@dataclass(frozen=True)
class Originals:
    """Copies of the graphs as they were imported, by role, for a baseline."""

    by_role: Mapping[str, ir.Model]


class LowerOwnParts(Stage):
    """Passes of the recipe for each model of an artifact."""

    name: ClassVar[str] = "passes"

    def run(self, done: Done) -> OwnParts:
        """See `Stage`."""
        parts, options = done[Parts], done[PartsOptions]
        done.warnings += parts.warnings
        done.leave(Originals({role: one.model.clone() for role, one in parts.graphs.items()}))
        found: dict[str, Lowered | None] = dict.fromkeys(parts.graphs)
        with telling(done.progress):
            for role, graph in parts.graphs.items():
                if role == TARGET:
                    found[role] = lower_steps(options, parts.step, done.warnings)
                elif role == ENCODER:
                    found[role] = lower_encoder(options, graph, done.warnings)
        return OwnParts(found)


class Calibrate(Stage):
    """Samples for passes of the recipe's own pipeline that learn from some."""

    name: ClassVar[str] = "calibration"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        learns = done[PartsOptions].recipe.pipeline.has(Effect.READS_SAMPLES)
        own = done[OwnParts].by_role.values()
        return learns and None in own and done[Parts].calibrate is not None

    def run(self, done: Done) -> None:
        """See `Stage`."""
        if calibrate := done[Parts].calibrate:
            done.warnings += calibrate()


class Lower(Stage):
    """Passes of the recipe's own pipeline, or of the recipe that it names for other models."""

    name: ClassVar[str] = "passes"

    def run(self, done: Done) -> LoweredParts:
        """See `Stage`."""
        options = done[PartsOptions]
        with telling(done.progress):
            try:
                lowered = self._lower(done)
            except UnsupportedError as error:
                if not options.recipe.otherwise or options.asked.backend:
                    raise
                other = options.otherwise()
                done.leave(other, other.recipe)
                done.warnings.append(
                    f"recipe {options.recipe.name} does not take this model ({error.where}: "
                    f"{error.message}): {other.recipe.name} does, and is what was compiled"
                )
                lowered = self._lower(done)
        done.take(OwnParts)
        runs = [run for one in lowered for run in one.runs]
        done.warnings += warnings_of(runs)
        done.leave(PassRuns(runs, ",".join(run.spec for run in runs)))
        return LoweredParts(lowered)

    def _lower(self, done: Done) -> Sequence[Lowered]:
        own, graphs = done[OwnParts].by_role, done[Parts].graphs
        return [own[role] or self._graph(done, role, one) for role, one in graphs.items()]

    def _graph(self, done: Done, role: str, part: ImportedTensors) -> LoweredGraph:
        """A part by the recipe's own pipeline, whose passes know the bounds of gates."""
        parts, options = done[Parts], done[PartsOptions]
        graph = replace(part, model=part.model.clone())
        dumps = options.dumps(role if len(parts.graphs) > 1 else "")
        gates = options.recipe.gates.items()
        bounds = {
            name: bound for name, bound in gates if bound is not None and name in parts.task.gates
        }
        runs = options.recipe.pipeline.run(graph.model, dumps, bounds=bounds)
        return LoweredGraph(role, graph, runs)


class Build(Stage):
    """Engines of all parts for every target."""

    name: ClassVar[str] = "build"

    def run(self, done: Done) -> BuiltEngines:
        """See `Stage`."""
        writer, requests = done[ArtifactWriter], done[PartsOptions].engines
        lowered = done.take(LoweredParts).all
        built = [
            part.build(writer, request, last=request is requests[-1])
            for request in requests
            for part in lowered
        ]
        parts = done[Parts]
        task = with_interfaces(parts.task, [one.entry for one in built])
        family = done[PartsOptions].recipe.task
        done.leave(Identity(task, Source(parts.name, parts.digest, family, {})))
        return BuiltEngines(built)


class Judge(JudgeStage):
    """The gates of every set of engines that runs here."""

    def bounds(self, done: Done) -> Bounds:
        """See `JudgeStage`: a recipe may have gates of several tasks."""
        known = done[Parts].task.gates
        return {name: bound for name, bound in done[Recipe].gates.items() if name in known}

    def run(self, done: Done) -> Judgement:
        """See `Stage`."""
        parts, engines, writer = done[Parts], done[BuiltEngines], done[ArtifactWriter]
        judge, asked = parts.judge(done[Recipe]), done[CompileOptions]
        sets = [
            (one.entry, [other.entry for other in engines.all if other.request is one.request])
            for one in engines.target
        ]
        originals = done[Originals].by_role
        with writer.scratch() as scratch:
            where = writer.folder, scratch
            verdicts = measure_parts(
                judge, self.bounds(done), parts.graphs, originals, sets, *where
            )
        strict = not (asked.allow_unmeasured or asked.keep_failed)
        failed = [one for one in verdicts if one.passed is False or (strict and is_open(one))]
        shown = tuple(one for one in verdicts if one.value is not None or one.bound is not None)
        facts = {"reference": "source", **judge.facts}
        return Judgement(shown, measured=True, failed=tuple(failed), facts=facts)


class WriteParts(Write):
    """Writes the artifact with the model's own files."""

    def run(self, done: Done) -> Artifact:
        """See `Stage`."""
        done.leave(done[Parts].write(done[ArtifactWriter]))
        done.warnings += self._sizes(done)
        done.report |= {"evaluation": {}, "samples": done[Judgement].facts, "tensors": []}
        return super().run(done)

    def _sizes(self, done: Done) -> Sequence[str]:
        """One warning where rounding made an engine larger than the one graph that it was made
        of."""
        originals, passes = done[Originals].by_role, done[PartsOptions].recipe.pipeline.passes
        if len(originals) > 1 or not any(one.phase is Phase.ROUNDING for one in passes):
            return ()
        folder = done[ArtifactWriter].folder
        least = min(folder_bytes(folder / one.entry.folder) for one in done[BuiltEngines].all)
        told = larger_than_source(least, model_bytes(originals[TARGET]))
        return [told] if told else ()


ROW = Row((LowerOwnParts(), Calibrate(), Lower(), Build()), Judge(), (WriteParts(),))
