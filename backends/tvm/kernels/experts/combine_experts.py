"""The results of a token's experts, weighted and added."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    SERIAL_WORK,
    Expr,
    bind,
    fma,
    for_rows,
    kernel,
    splat,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.errors import UnsupportedError


@dataclass(frozen=True)
class CombineExperts:
    """Rows of ``width`` values, k of each token."""

    width: int
    chosen: int

    def __post_init__(self) -> None:
        if self.chosen < 1:
            raise UnsupportedError(
                f"nothing to combine of {self.chosen} experts", where="combine_experts"
            )


def combine_experts(config: CombineExperts, isa: Isa) -> tvm.tirx.PrimFunc:
    """y f32 [M,D], weights f32 [T,k] -> out f32 [T,D], the sum of weight times row over a token's k
    rows, in their order; M is k T.

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    width, chosen = config.width, config.chosen
    with kernel("combine_experts") as builder:
        tokens, rows = builder.size(), builder.size()
        y = builder.argument("y", (rows, width))
        weights = builder.argument("weights", (tokens, chosen))
        out = builder.argument("out", (tokens, width))

        def body(token: Expr) -> None:
            first = bind(token * chosen)
            factors = [bind(splat(weights[token, choice])) for choice in range(chosen)]

            def write(offset: Expr | int, count: int) -> None:
                total = bind(load_part(y, count, first, offset) * factors[0])
                for choice, factor in enumerate(factors[1:], 1):
                    row = load_part(y, count, first + choice, offset)
                    total = bind(fma(row, factor, total))
                store_part(out, total, count, token, offset)

            for_vectors(width, write)

        for_rows(tokens, tokens * (chosen * width) > SERIAL_WORK, body)
    return builder.finish()
