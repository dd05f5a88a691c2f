"""Matmul of int8 activations, quantized per token, by int8 or int4 weights.

One kernel serves one row (a matrix-vector product at memory bandwidth), a few rows and hundreds.
Per channel, one int32 sum runs over all of K; with groups, each group's int32 sum is scaled and
added to a float32 in the order of the groups. Integer sums are exact on every instruction set, and
the float operations are the same everywhere, so results do not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul.places import BLOCK, Panels
from optc.backends.tvm.kernels.matmul.schedule import Schedule, default_schedule
from optc.backends.tvm.kernels.matmul.tiles import (
    Operand,
    round_up,
)
from optc.errors import UnsupportedError

#: Activations whose sum is one value of xsum; K is padded to a multiple.
SUM_WIDTH = 32
#: Input channels of int8 weights of which two blocks fit into the second-level cache.
WHOLE_CHANNELS = 6144
#: Input channels of a panel of K where there are more.
PANEL_CHANNELS = 2048
#: Input channels of a panel of K, 16 KiB of weights that stay in the first-level cache, and the
#: rows up to which there are such: of more, keeping their sums takes longer than it saves.
SHORT_CHANNELS, SHORT_ROWS = 256, 32
#: Most rows of a task that keeps their sums from one panel of K to the next: 64 KiB.
KEPT_ROWS = 256


@dataclass(frozen=True)
class IntMatmul:
    """Shape and weight format.

    Attributes:
        n: Output channels N.
        k: Input channels K, as the model has them.
        bits: 8 or 4.
        group_size: Input channels that share a scale; 0 is one float32 scale per channel.
        asymmetric: Zero points are an operand; else stored weights are value + 128 (or + 8).
        minimums: What a stored 0 stands for is an operand, of groups, instead of zero points.
        bias: A bias is an operand.
        schedule: How its work is cut up; None is the default of the instruction set.
    """

    n: int
    k: int
    bits: int = 8
    group_size: int = 0
    asymmetric: bool = False
    minimums: bool = False
    bias: bool = False
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        if self.bits not in (4, 8) or self.group_size < 0 or self.group_size % SUM_WIDTH:
            raise UnsupportedError(
                f"no integer matmul for {self.bits} bits in groups of {self.group_size}",
                where="int_matmul",
                hint="bits 4 or 8; group_size 0 (per channel) or a multiple of 32",
            )
        if self.minimums and (self.asymmetric or not self.group_size):
            raise UnsupportedError(
                "minimums are of groups, and stand for their zero points",
                where="int_matmul",
                hint="set a group_size, and leave zero points out",
            )

    @property
    def k_padded(self) -> int:
        """Kp: K rounded up to 32; activations there are 0."""
        return round_up(self.k, SUM_WIDTH)

    @property
    def blocks(self) -> int:
        """Blocks of 64 output channels."""
        return round_up(self.n, BLOCK) // BLOCK

    @property
    def groups(self) -> int:
        """G: scales of one output channel."""
        return -(-self.k // self.group_size) if self.group_size else 1

    @property
    def panels(self) -> Panels | None:
        """The panels in which tasks of several tiles go through K; None is all of it at once."""
        whole = self.group_size or self.k_padded <= WHOLE_CHANNELS
        return None if whole else Panels(PANEL_CHANNELS, KEPT_ROWS)

    @property
    def short_panels(self) -> Panels | None:
        """The same for a few rows, if their sums are kept seldom enough."""
        short = self.group_size or self.k_padded < 4 * SHORT_CHANNELS
        return None if short else Panels(SHORT_CHANNELS, SHORT_ROWS)

    def schedule_on(self, isa: Isa) -> Schedule:
        """The schedule it is built with."""
        return self.schedule or default_schedule(self.blocks, self.group_size, isa)

    def columns(self, rows: int, isa: Isa) -> int:
        """Columns of a register tile of ``rows`` rows."""
        limit = BLOCK // 2 if rows > self.schedule_on(isa).wide else BLOCK
        return min(isa.columns(rows), limit)

    @property
    def weights(self) -> dict[str, Operand]:
        """Shape and type of the packed operands, in the kernel's order."""
        columns = (self.blocks, self.groups, BLOCK)
        packed = (self.blocks, self.k_padded * self.bits // 32, BLOCK, 4)
        operands: dict[str, Operand] = {"w": (packed, "uint8")}
        operands["ws"] = (columns, "float16" if self.group_size else "float32")
        if self.asymmetric:
            operands["wz"] = (columns, "uint8")
        if self.minimums:
            operands["wm"] = (columns, "float16")
        if self.bias:
            operands["bias"] = ((self.n,), "float32")
        return operands

    @property
    def name(self) -> str:
        """Name of the function, distinct for each config but for its schedule."""
        kind = f"_g{self.group_size}" if self.group_size else ""
        flags = ("_zp" if self.asymmetric else "") + ("_min" if self.minimums else "")
        flags += "_bias" if self.bias else ""
        return f"matmul_int{self.bits}{kind}{flags}_{self.n}x{self.k}"
