"""Decoders of encoder-decoders as engines of ragged steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import structs

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.artifact.tasks.task import Task
from optc.backend import BuildOptions, SharedWeights, StepBackend
from optc.compiling.building.built_engine import TARGET, BuiltEngine, engine_of, entry_of, folder_of
from optc.compiling.parts.own import DECODER, dumps_of, own_part, unavailable
from optc.compiling.resolving.engines import EngineTarget
from optc.compiling.tensors.stages import Stages
from optc.errors import UnsupportedError
from optc.runtime.executable.interface import type_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.ir.pipeline.record import PassRecord

#: Rows of a step, sequences that run at once, and rows of a step with logits.
_ROWS, _SEQUENCES, _LOGITS = 256, 16, 64


@dataclass(frozen=True)
class StepPart:
    """A decoder that attends to an encoder.

    Attributes:
        export: Gives it in the form `optc.ir.forms.decoder.Exported`.
        most_tokens: Of a sequence, prompt and text together.
    """

    export: Callable[[], ir.Model]
    most_tokens: int

    @property
    def limits(self) -> BuildOptions:
        """Of its engines."""
        return BuildOptions(
            max_context=self.most_tokens,
            max_rows=_ROWS,
            max_sequences=_SEQUENCES,
            max_logit_rows=_LOGITS,
        )


@dataclass(frozen=True)
class LoweredSteps:
    """A decoder as a ragged step, to be built.

    Attributes:
        backend: Builds it.
        model: The step.
        limits: Of its engines.
        runs: Of the passes that made it.
    """

    backend: StepBackend
    model: ir.Model
    limits: BuildOptions
    runs: Sequence[PassRecord]

    def build(self, stages: Stages, request: EngineTarget) -> BuiltEngine:
        """Build one engine, which the last request changes."""
        started, name = time.perf_counter(), engine_of(TARGET, request)
        model = self.model if request is stages.engines[-1] else self.model.clone()
        place, backend = stages.writer.subfolder(folder_of(name)), self.backend
        build = backend.build(model, request.target, place, self.limits)
        entry = entry_of(name, TARGET, backend, request.target, build)
        weights = SharedWeights(f"../{name}", build.backend_data)
        return BuiltEngine(request, entry, build, weights, time.perf_counter() - started)


def lower_steps(stages: Stages, part: StepPart | None, warnings: list[str]) -> LoweredSteps | None:
    """The decoder as a ragged step; None where it is compiled by the recipe's own pipeline.

    Args:
        stages: Of the recipe.
        part: The decoder, if the model has one.
        warnings: Get one that says why, where the recipe wants steps.
    """
    own = None if part is None else own_part(stages, DECODER)
    if part is None or own is None:
        return None
    backend = registry.backend(own.backend)
    if not isinstance(backend, StepBackend):
        reason = f"the backend {own.backend} builds no steps"
    elif not (reason := unavailable(backend, stages.engines)):
        try:
            model = part.export()
            runs = own.pipeline.run(model, dumps_of(stages, "steps"))
            reason = refusal(backend, model, stages.engines)
            if not reason:
                return LoweredSteps(backend, model, part.limits, runs)
        except UnsupportedError as error:
            reason = f"{error.where}: {error.message}"
    warnings.append(
        f"the decoder runs in the backend {stages.recipe.backend}, in batches of requests that"
        f" begin together: no steps of {own.backend} are built of it ({reason})"
    )
    return None


def refusal(backend: StepBackend, model: ir.Model, engines: Sequence[EngineTarget]) -> str:
    """Why the backend does not build a step for one of the targets; empty if it does for all."""
    for node in model.graph:
        for one in engines:
            support = backend.supports(node, one.target)
            if support.how == "unsupported":
                return f"{node.op_type} {node.name}: {support.reason}"
    return ""


def with_interfaces(task: Task, engines: Sequence[EngineEntry]) -> Task:
    """The task of a model whose roles have the interfaces of these engines."""
    found = {engine.role: type_of(engine.interface) for engine in engines}
    return structs.replace(task, roles={**task.roles, **found})
