"""Matmuls by weights of 2 to 6 bits with integer group scales, of the experts of each row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.experts.int_experts import MANY_BLOCKS
from optc.backends.tvm.kernels.experts.spans import (
    ExpertShape,
    check_experts,
    emit_expert_tiles,
    expert_rows,
)
from optc.backends.tvm.kernels.matmul.activations import quantized_rows
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul, two_level_work
from optc.backends.tvm.kernels.matmul.rooms import RoomsAsTaken
from optc.backends.tvm.kernels.matmul.schedule import Schedule, two_level_schedule
from optc.backends.tvm.kernels.matmul.tiles import Operand, argument, building


@dataclass(frozen=True)
class TwoLevelExperts(ExpertShape, TwoLevelMatmul):
    """Shape and weight format of one expert, and how many there are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_experts(self.experts, self.chosen, "two_level_experts")

    def schedule_on(self, isa: Isa) -> Schedule:
        """The schedule it is built with."""
        return self.schedule or two_level_schedule(MANY_BLOCKS, isa)

    @property
    def weights(self) -> dict[str, Operand]:
        """Shape and type of the packed operands, in the kernel's order."""
        return self.of_all(super().weights, self.n)

    @property
    def name(self) -> str:
        """Name of the function, distinct for each config but for its schedule."""
        return self.name_of(super().name)


def two_level_experts(config: TwoLevelExperts, isa: Isa) -> Any:
    """The kernel as a `tvm.tirx.PrimFunc`; T is dynamic, M = k T.

    Buffers in order (Kp = K up to 32, B = N/64 rounded up, G groups; rows are T if ``spread``,
    else M):
        xq int8 [rows, Kp], xs float32 [rows], xsum int32 [rows, Kp/32]: as of `two_level_matmul`.
        order int32 [M], spans int32 [M, 3], count int32 [1]: of `expert_plan`.
        w uint8 [E*B, Kp*bits/32, 64, 4], wg uint8 [E*B, G, 2, 64], ws float32 [E*B, 1, 64]: as of
        `two_level_matmul`, one expert's after the other's.
        bias float32 [E*B*64]: only if ``bias``.
        out float32 [M, N]: of each token its k rows, in the order of its choice.
    """
    with building(config.name) as builder:
        rows = tir.int32()
        x = quantized_rows(tir.int32() if config.spread else rows, config.k_padded)
        plan = expert_rows(rows, config.chosen, config.spread)
        weights = {name: argument(name, *operand) for name, operand in config.weights.items()}
        out = argument("out", (rows, config.n), "float32")
        rooms = RoomsAsTaken()
        work = two_level_work(config, isa, rows, x, weights, out, plan.rows_at, rooms)
        # Interleaving serves all blocks of one matmul; here it would be done in every task.
        emit_expert_tiles(replace(work, tall=None), plan)
    return builder.get()
