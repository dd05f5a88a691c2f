"""The split of the matmuls of experts: a task is 64 output channels of the rows of one expert.

The plan of a step (`expert_plan`) lists the rows by expert, in *spans* of rows of one expert. Tasks
go through the spans one after the other, and through all blocks of channels of each, so that the
weights of an expert, which lie one after the other, are read in order and once; experts without
rows are not touched. Within a task, tiles are those of the plain matmul, for as many rows as the
span has: few are bound by the bytes of weights, many by products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.matmul.places import BLOCK, Place
from optc.backends.tvm.kernels.matmul.tasks import SERIAL_WEIGHTS, Span, Work, emit_tiles
from optc.backends.tvm.kernels.matmul.tiles import (
    Operand,
    TileRows,
    argument,
    round_up,
    variable,
)
from optc.errors import UnsupportedError


@dataclass(frozen=True)
class ExpertRows:
    """The plan, as the kernels take it; M is k times T.

    Attributes:
        order: int32 [M]: the rows, in the order of their experts.
        spans: int32 [M, 3]: an expert, its first place in ``order`` and the place behind its last.
        count: int32 [1]: how many of ``spans`` there are.
        chosen: k, experts of a token.
        spread: A token has one row of activations for all of its experts.
    """

    order: Any
    spans: Any
    count: Any
    chosen: int
    spread: bool

    def rows_at(self, start: Any, count: int) -> TileRows:
        """The rows of a tile, by a place in ``order``."""
        # 64 bits, so that where a row begins is computed once, not with each access.
        rows = [tir.cast(self.order[start + r], "int64") for r in range(count)]
        write = [variable(row, "int64") for row in rows]
        if not self.spread:
            return TileRows(write, write)
        return TileRows([variable(row // self.chosen, "int64") for row in rows], write)


def check_experts(experts: int, chosen: int, where: str) -> None:
    """Raises:
    UnsupportedError: Fewer experts than are chosen, or none.
    """
    if not 1 <= chosen <= experts:
        raise UnsupportedError(
            f"{chosen} of {experts} experts cannot be chosen", where=where, hint="1 to all of them"
        )


@dataclass(frozen=True)
class ExpertShape:
    """The numbers that make the matmul of one expert that of many.

    Attributes:
        experts: E.
        chosen: k, experts of a token.
        spread: Each of them gets the same row of activations.
    """

    experts: int = 1
    chosen: int = 1
    spread: bool = False

    def of_all(self, weights: Mapping[str, Operand], n: int) -> dict[str, Operand]:
        """The packed operands of all experts, from those of one with N channels: block by block,
        each expert's N rounded up to whole blocks, its bias too."""
        operands = {
            name: ((shape[0] * self.experts, *shape[1:]), dtype)
            for name, (shape, dtype) in weights.items()
        }
        if "bias" in operands:
            operands["bias"] = ((self.experts * round_up(n, BLOCK),), "float32")
        return operands

    def name_of(self, one: str) -> str:
        """The function's name, from that of one expert's."""
        return f"experts_{self.chosen}of{self.experts}{'_spread' * self.spread}_{one}"


def expert_rows(rows: Any, chosen: int, spread: bool) -> ExpertRows:
    """Declare the plan as the next arguments."""
    return ExpertRows(
        argument("order", (rows,), "int32"),
        argument("spans", (rows, 3), "int32"),
        argument("count", (1,), "int32"),
        chosen,
        spread,
    )


def emit_expert_tiles(work: Work, plan: ExpertRows) -> None:
    """Emit the loop over spans and blocks; ``work`` is that of one expert's matmul."""
    blocks = round_up(work.n, BLOCK) // BLOCK
    weights = work.n * work.k * plan.chosen  # of one token
    loop = tir.parallel if weights > SERIAL_WEIGHTS else tir.serial
    with loop(tir.bind(plan.count[0] * blocks)) as index:
        span = variable(index // blocks)
        origin = variable(plan.spans[span, 0] * blocks)
        first, last = variable(plan.spans[span, 1]), variable(plan.spans[span, 2])
        place = Place(variable(origin + index % blocks), 0, BLOCK, origin=origin)
        task = Span(place, first, last)
        emit_tiles(replace(work, rows=variable(last - first), span=task))
