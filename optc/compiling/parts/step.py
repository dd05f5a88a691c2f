"""Decoders of encoder-decoders as engines of ragged steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.artifact.tasks.task import Task
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions, EngineBuild, StepBackend
from optc.compiling.building.built_engine import TARGET, BuiltEngine, build_engine
from optc.compiling.parts.options import PartsOptions
from optc.compiling.resolving.engines import EngineTarget
from optc.errors import UnsupportedError
from optc.runtime.executable.interface import type_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.ir.pipeline.record import PassRecord

#: Key of a recipe's part for a decoder's steps; that of the encoder is its role.
DECODER = "decoder"
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

    def build(self, writer: ArtifactWriter, request: EngineTarget, *, last: bool) -> BuiltEngine:
        """Build one engine; the ``last`` one changes the step."""
        model = self.model if last else self.model.clone()

        def make(place: Path) -> EngineBuild:
            return self.backend.build(model, request.target, place, self.limits)

        return build_engine(writer, request, TARGET, self.backend, make)


def lower_steps(
    options: PartsOptions, part: StepPart | None, warnings: list[str]
) -> LoweredSteps | None:
    """The decoder as a ragged step; None where it is compiled by the recipe's own pipeline.

    Args:
        options: Of the compile.
        part: The decoder, if the model has one.
        warnings: Get one that says why, where the recipe wants steps.
    """
    own = None if part is None else options.own_part(DECODER)
    if part is None or own is None:
        return None
    backend = registry.backend(own.backend)
    if not isinstance(backend, StepBackend):
        reason = f"the backend {own.backend} builds no steps"
    elif not (reason := options.unavailable(backend)):
        try:
            model = part.export()
            runs = own.pipeline.run(model, options.dumps("steps"))
            reason = refusal(backend, model, options.engines)
            if not reason:
                return LoweredSteps(backend, model, part.limits, runs)
        except UnsupportedError as error:
            reason = f"{error.where}: {error.message}"
    warnings.append(
        f"the decoder runs in the backend {options.recipe.backend}, in batches of requests that"
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
