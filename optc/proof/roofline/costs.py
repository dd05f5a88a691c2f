"""The costs of a step: bytes from memory and operations, as functions of its work.

A backend states the costs of its kernels when it builds; `StepCosts` evaluates them. Counted are
the bytes that cannot be in a cache, weights and KV, and the arithmetic of matmuls and attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from optc.runtime.executable.executable import StepInterface
from optc.runtime.metrics.step_workload import StepWorkload
from optc.system.foreign.typed_json import Count, exactly, typed

#: Amounts of work by name: ``1`` (once a step), ``T`` rows, ``R`` rows with logits and, for each
#: KV group g, ``kv<g>`` tokens whose K and V are read, ``pairs<g>`` pairs of a row and a token.
#: ``T:8of128`` are the experts that the rows choose, 8 of 128 each; ``R:8of128`` those with logits.
Factors = Mapping[str, float]
_KIND = r"\A(1|T|R|(kv|pairs)[0-9]+|(T|R):[0-9]+of[1-9][0-9]*)\Z"
#: Bytes or operations by kind of work.
Terms = Mapping[Annotated[str, Meta(pattern=_KIND)], Annotated[float, Meta(ge=0)]]
#: Ceilings of arithmetic.
PEAKS = ("int4", "int8", "fp4", "fp8", "fp16", "bf16", "fp32")
Peak = Annotated[str, exactly(*PEAKS)]


@dataclass(frozen=True)
class KernelCost:
    """Costs of all calls of one kernel in a step.

    Attributes:
        calls: Calls in a step.
        peak: Ceiling of its arithmetic, one of `PEAKS`.
        bytes: Bytes that must come from memory, by kind of work.
        ops: Operations (a multiply-add is two), by kind of work.
        shape: For a reader: ``NxK`` of a matmul, else empty.
    """

    calls: Count
    peak: Peak
    bytes: Terms
    ops: Terms
    shape: str = ""

    def bytes_of(self, work: Factors) -> float:
        """Bytes of a step with this work."""
        return _evaluate(self.bytes, work)

    def ops_of(self, work: Factors) -> float:
        """Operations of a step with this work."""
        return _evaluate(self.ops, work)

    def roof_s(self, work: Factors, ceilings: Mapping[str, float]) -> float:
        """Least seconds of a step's calls; ``ceilings`` in bytes/s and operations/s."""
        return max(self.bytes_of(work) / ceilings["read"], self.ops_of(work) / ceilings[self.peak])


@dataclass(frozen=True)
class StepCosts:
    """Costs of a whole step.

    Attributes:
        peak: Ceiling of the matmuls with the most weights, against which MFU is stated.
        kernels: Costs by kernel name.
    """

    peak: Peak
    kernels: Mapping[str, KernelCost]

    def bytes_of(self, work: Factors) -> float:
        """Bytes that a step with this work must read: weights once, KV, rows of embeddings."""
        return sum(cost.bytes_of(work) for cost in self.kernels.values())

    def ops_of(self, work: Factors) -> float:
        """Operations of a step with this work."""
        return sum(cost.ops_of(work) for cost in self.kernels.values())

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights that steps read: what each reads, and all experts."""
        terms = (term for cost in self.kernels.values() for term in cost.bytes.items())
        return sum(count * bytes_ for kind, bytes_ in terms if (count := _all_of(kind)))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StepCosts:
        """The costs that ``asdict`` turned into JSON.

        Raises:
            ArtifactError: They are not.
        """
        return typed(data, StepCosts, "costs")


def main_peak(kernels: Mapping[str, KernelCost]) -> str:
    """The ceiling that bounds most of the arithmetic of a row with logits."""
    ops: dict[str, float] = {}
    for cost in kernels.values():
        row = cost.ops.get("T", 0.0) + cost.ops.get("R", 0.0)
        ops[cost.peak] = ops.get(cost.peak, 0.0) + row
    return max(sorted(ops), key=lambda peak: ops[peak], default="fp32")


def step_work(
    spec: StepInterface, new_rows: Sequence[int], lengths: Sequence[int], wanted: int
) -> dict[str, float]:
    """The work of one step.

    Args:
        spec: Of the engine.
        new_rows: [B] new rows of each sequence.
        lengths: [B] tokens of each sequence after this step.
        wanted: Rows whose logits are wanted.
    """
    work = StepWorkload(tuple(group.window for group in spec.groups))
    work.add_step(list(zip(new_rows, lengths, strict=True)), wanted)
    return work.factors()


def _all_of(kind: str) -> int:
    """The most times that a step can read bytes of this kind that are weights."""
    return 1 if kind == "1" else int(kind.partition("of")[2] or 0)


def _evaluate(terms: Mapping[str, float], work: Factors) -> float:
    return sum(factor * work[kind] for kind, factor in terms.items())
