"""Matmuls of float32 activations by float32 or bfloat16 weights of the experts of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.experts.spans import (
    ExpertShape,
    check_experts,
    emit_expert_tiles,
    expert_rows,
)
from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul, float_work
from optc.backends.tvm.kernels.matmul.tiles import Operand, argument, building


@dataclass(frozen=True)
class FloatExperts(ExpertShape, FloatMatmul):
    """Shape and weight format of one expert, and how many there are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_experts(self.experts, self.chosen, "float_experts")

    @property
    def weights(self) -> dict[str, Operand]:
        """Shape and type of the packed operands, in the kernel's order."""
        return self.of_all(super().weights, self.n)

    @property
    def name(self) -> str:
        """Name of the function, distinct for each config."""
        return self.name_of(super().name)


def float_experts(config: FloatExperts, isa: Isa) -> Any:
    """The kernel as a `tvm.tirx.PrimFunc`; T is dynamic, M = k T.

    Buffers in order (B = N/64 rounded up; rows are T if ``spread``, else M):
        x float32 [rows, K].
        order int32 [M], spans int32 [M, 3], count int32 [1]: of `expert_plan`.
        w float32 [E*B, K, 64], or uint16 [E*B, K/2 rounded up, 64, 2], the bits of bfloat16.
        bias float32 [E*B*64]: only if ``bias``.
        out float32 [M, N]: of each token its k rows, in the order of its choice.
    """
    with building(config.name) as builder:
        rows = tir.int32()
        tokens = tir.int32() if config.spread else rows
        x = argument("x", (tokens, config.k), "float32")
        plan = expert_rows(rows, config.chosen, config.spread)
        weights = {name: argument(name, *operand) for name, operand in config.weights.items()}
        out = argument("out", (rows, config.n), "float32")
        with float_work(config, isa, tokens, x, weights, out, plan.rows_at) as work:
            emit_expert_tiles(work, plan)
    return builder.get()
