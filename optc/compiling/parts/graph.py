"""Parts of a model as engines of named tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from optc import registry
from optc.artifact.tasks.task import ENCODER
from optc.artifact.writer import ArtifactWriter
from optc.backend import Backend, EngineBuild, TensorsBuilder
from optc.compiling.building.built_engine import BuiltEngine, build_engine
from optc.compiling.parts.options import PartsOptions, tensors_builder
from optc.compiling.resolving.engines import EngineTarget
from optc.errors import UnsupportedError

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord


class Lowered(Protocol):
    """A part behind its passes, to be built."""

    @property
    def runs(self) -> Sequence[PassRecord]:
        """Of the passes."""
        ...

    def build(self, writer: ArtifactWriter, request: EngineTarget, *, last: bool) -> BuiltEngine:
        """Build one engine; the ``last`` one changes the graph."""
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

    def build(self, writer: ArtifactWriter, request: EngineTarget, *, last: bool) -> BuiltEngine:
        """See `Lowered`.

        Raises:
            UnsupportedError: The backend does not take the graph.
        """
        backend = self.backend or request.backend
        model = self.part.model if last else self.part.model.clone()

        def make(place: Path) -> EngineBuild:
            builder = tensors_builder(backend)
            return builder.build_tensors(model, self.part.interface, request.target, place)

        return build_engine(writer, request, self.role, backend, make)


def lower_encoder(
    options: PartsOptions, part: ImportedTensors, warnings: list[str]
) -> LoweredGraph | None:
    """The encoder by the recipe's part for it; None where it is compiled by the recipe's own
    pipeline.

    Args:
        options: Of the compile.
        part: The encoder.
        warnings: Get one that says why, where the recipe has such a part.
    """
    own = options.own_part(ENCODER)
    if own is None:
        return None
    backend = registry.backend(own.backend)
    if not isinstance(backend, TensorsBuilder):
        reason = f"the backend {own.backend} builds no engines of named tensors"
    elif not (reason := options.unavailable(backend)):
        graph = replace(part, model=part.model.clone())
        try:
            runs = own.pipeline.run(graph.model, options.dumps(ENCODER))
        except UnsupportedError as error:
            reason = f"{error.where}: {error.message}"
        else:
            return LoweredGraph(ENCODER, graph, runs, backend)
    warnings.append(
        f"the encoder runs in the backend {options.recipe.backend}: none of {own.backend} is built"
        f" of it ({reason})"
    )
    return None
