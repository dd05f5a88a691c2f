"""Results of rows of 16 bits: the sum of those of their two rows of 8."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import SERIAL_WORK, Expr, bind, for_rows, kernel
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part


@dataclass(frozen=True)
class PairSum:
    """Rows of ``width`` values; ``bias`` says whether one is added."""

    width: int
    bias: bool = False


def pair_sum(config: PairSum, isa: Isa) -> tvm.tirx.PrimFunc:
    """y f32 [2T,N], [bias f32 [N]] -> out f32 [T,N]: y[2t] + y[2t+1] [+ bias].

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    width = config.width
    with kernel("pair_sum") as builder:
        rows = builder.size()
        y = builder.argument("y", (rows * 2, width))
        bias = builder.argument("bias", (width,)) if config.bias else None
        out = builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            def write(offset: Expr | int, count: int) -> None:
                high = load_part(y, count, row * 2, offset)
                value = bind(high + load_part(y, count, row * 2 + 1, offset))
                if bias is not None:
                    value = value + load_part(bias, count, offset)
                store_part(out, value, count, row, offset)

            for_vectors(width, write)

        for_rows(rows, rows * width > SERIAL_WORK, body)
    return builder.finish()
