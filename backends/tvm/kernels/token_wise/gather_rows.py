"""Gather of rows, such as those whose logits are wanted."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import SERIAL_WORK, Expr, bind, for_rows, kernel
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part


@dataclass(frozen=True)
class RowGather:
    """Gather of float32 rows of ``width`` values."""

    width: int


def gather_rows(config: RowGather, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,D], rows i32 [R] -> out f32 [R,D] with ``out[r] = x[rows[r]]``.

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    width = config.width
    with kernel("gather_rows") as builder:
        count, total = builder.size(), builder.size()
        x = builder.argument("x", (total, width))
        rows = builder.argument("rows", (count,), "int32")
        out = builder.argument("out", (count, width))

        def body(row: Expr) -> None:
            source = bind(rows[row])
            for_vectors(width, lambda o, n: store_part(out, load_part(x, n, source, o), n, row, o))

        for_rows(count, count * width > SERIAL_WORK, body)
    return builder.finish()
