"""The weight of an expert among its rivals, as sparse mixers have it (arXiv:2409.12136)."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.math import exp
from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    Register,
    absolute,
    bind,
    load,
    splat,
)
from optc.backends.tvm.kernels.dsl.vectors import reduce_row

_GONE = float("-inf")


def weight_among_rivals(left: Expr, best: Expr, width: int, threshold: float) -> Expr:
    """1 / the sum of exp(x - ``best``) over rivals x.

    Args:
        left: Logits that can be chosen, ``best`` the largest of them; others are -inf.
        best: A scalar.
        width: Of ``left``, a multiple of 16.
        threshold: Rivals are within this, of the larger of ``best`` and their magnitude.
    """
    own = bind(splat(best))

    def add(partial: Register, offset: Expr | int, _: int) -> None:
        value = bind(load(left, offset))
        ratio = (own - value) / tir.max(absolute(value), own)
        nothing = splat(0.0)
        near = tir.Select(ratio > splat(threshold), nothing, exp(value - own))
        partial.set(partial.get() + tir.Select(value == splat(_GONE), nothing, near))

    return bind(tir.float32(1.0) / reduce_row(width, 0.0, add, lambda a, b: a + b))
