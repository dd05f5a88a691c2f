"""Halves of an encoder-decoder as engines of named tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from optc import registry
from optc.artifact.tasks.task import ENCODER
from optc.backend import Backend, TensorsBuilder
from optc.compiling.building.built_engine import BuiltEngine, engine_of
from optc.compiling.parts.own import dumps_of, own_part, unavailable
from optc.compiling.resolving.engines import EngineTarget
from optc.compiling.tensors.stages import Stages
from optc.errors import UnsupportedError

if TYPE_CHECKING:
    from optc.artifact.tasks.task import Task
    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord


class Lowered(Protocol):
    """A part behind its passes, to be built."""

    @property
    def runs(self) -> Sequence[PassRecord]:
        """Of the passes."""
        ...

    def build(self, stages: Stages, request: EngineTarget) -> BuiltEngine:
        """Build one engine; the last request of ``stages`` changes the graph."""
        ...


@dataclass(frozen=True)
class LoweredGraph:
    """A part with named tensors.

    Attributes:
        role: Of the engine.
        part: Its graph behind the passes.
        runs: Of the passes.
        backend: Builds it; None is the backend of each engine that is asked for.
    """

    role: str
    part: ImportedTensors
    runs: Sequence[PassRecord]
    backend: Backend | None = None

    def build(self, stages: Stages, request: EngineTarget) -> BuiltEngine:
        """See `Lowered`.

        Raises:
            UnsupportedError: As `Stages.build_engine`.
        """
        name, backend = engine_of(self.role, request), self.backend or request.backend
        return stages.build_engine(self.part, request, name, self.role, backend)


def lower_graph(stages: Stages, part: ImportedTensors, task: Task, role: str) -> LoweredGraph:
    """A part by the recipe's own pipeline."""
    graph = replace(part, model=part.model.clone())
    return LoweredGraph(role, graph, stages.run_passes(graph.model, task, role))


def lower_encoder(
    stages: Stages, part: ImportedTensors, role: str, warnings: list[str]
) -> LoweredGraph | None:
    """The encoder by the recipe's part for it; None where it is compiled by the recipe's own
    pipeline.

    Args:
        stages: Of the recipe.
        part: The encoder.
        role: Of its engine.
        warnings: Get one that says why, where the recipe has such a part.
    """
    own = own_part(stages, ENCODER)
    if own is None:
        return None
    backend = registry.backend(own.backend)
    if not isinstance(backend, TensorsBuilder):
        reason = f"the backend {own.backend} builds no engines of named tensors"
    elif not (reason := unavailable(backend, stages.engines)):
        graph = replace(part, model=part.model.clone())
        try:
            runs = own.pipeline.run(graph.model, dumps_of(stages, role))
        except UnsupportedError as error:
            reason = f"{error.where}: {error.message}"
        else:
            return LoweredGraph(role, graph, runs, backend)
    warnings.append(
        f"the encoder runs in the backend {stages.recipe.backend}: none of {own.backend} is built"
        f" of it ({reason})"
    )
    return None
