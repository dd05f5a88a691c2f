"""Estimates of an engine's size and of the costs of its steps, before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from optc.proof.roofline.ceilings import Ceiling
from optc.proof.roofline.costs import StepCosts, step_work
from optc.runtime.executable.executable import StepInterface
from optc.system.hardware.target import Target

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.backend import BuildOptions

#: Tokens of the sequence and prompt for which plans state figures.
CONTEXT = 512


@dataclass(frozen=True)
class EngineEstimate:
    """An engine that was not built.

    Attributes:
        spec: Its limits and KV shape.
        weight_bytes: Of its weights, in the form that it would store.
        costs: Of its steps.
        file_bytes: Of its files that are known to the byte: weights as they are laid out, and
            libraries.
        code_bytes: Of its code, as it usually is.
        tensors: How many its weights are made of.
        compile_s: Seconds of one thread in which its kernels are compiled, roughly.
    """

    spec: StepInterface
    weight_bytes: int
    costs: StepCosts
    file_bytes: int = 0
    code_bytes: int = 0
    tensors: int = 0
    compile_s: float = 0.0


@dataclass(frozen=True)
class SpeedBound:
    """Tokens/s that no engine of these costs exceeds on a machine with these ceilings.

    Attributes:
        decode_tokens_per_s: One sequence.
        prefill_tokens_per_s: One prompt.
    """

    decode_tokens_per_s: float
    prefill_tokens_per_s: float


@runtime_checkable
class EstimatingBackend(Protocol):
    """A method beside `optc.backend.Backend`; a backend may lack it."""

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        """The engine that `optc.backend.StepBackend.build` would build from a ragged step, of which
        it `supports` every node.

        Raises:
            optc.errors.UnavailableError: Nothing is known of engines for the target.
        """
        ...


def decode_work(spec: StepInterface, context: int) -> dict[str, float]:
    """The work of a step that decodes one sequence of ``context`` tokens."""
    return step_work(spec, [1], [context], 1)


def prefill_work(spec: StepInterface, tokens: int) -> dict[str, float]:
    """The work of a step that reads a prompt."""
    return step_work(spec, [tokens], [tokens], 1)


def speed_bound(
    estimate: EngineEstimate, context: int, ceilings: Mapping[str, Ceiling]
) -> SpeedBound | None:
    """The bound by the roofline of every kernel (Williams et al., 2009): each takes at least the
    longer of the times that its bytes and its operations need.

    Args:
        estimate: Of the engine.
        context: Tokens of the sequence and of the prompt.
        ceilings: Of the machine; None is returned where one that the costs need is not among them.
    """
    best = {name: ceiling.best for name, ceiling in ceilings.items()}
    kernels = estimate.costs.kernels.values()
    if not {cost.peak for cost in kernels} <= best.keys():
        return None
    decode, prefill = (
        sum(cost.roof_s(work, best) for cost in kernels)
        for work in (decode_work(estimate.spec, context), prefill_work(estimate.spec, context))
    )
    return SpeedBound(1 / decode, context / prefill)


def estimate_json(estimate: EngineEstimate) -> dict[str, Any]:
    """Bytes of weights, bytes that a decode step of one sequence reads and operations of a
    prompt's token, at `CONTEXT` tokens or the context."""
    context = min(CONTEXT, estimate.spec.max_context)
    costs = estimate.costs
    return {
        "weight_bytes": estimate.weight_bytes,
        "kv_bytes_per_token": estimate.spec.kv_bytes_per_token,
        "context": context,
        "decode_bytes": costs.bytes_of(decode_work(estimate.spec, context)),
        "prefill_ops_per_token": costs.ops_of(prefill_work(estimate.spec, context)) / context,
        "peak": costs.peak,
    }
