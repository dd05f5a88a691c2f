"""The rotation of one head by its position's angles."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import Expr, bind, fma, like, store
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part


def rotate_head(
    head: Expr, cos: Expr, sin: Expr, row: Expr, rotary_dim: int, interleaved: bool
) -> None:
    """Rotate the first ``rotary_dim`` values of ``head`` [dim] in place by cos, sin [T, r/2].

    Pair i is (i, i + r/2), or (2i, 2i + 1) if interleaved: (a, b) becomes
    (a cos - b sin, b cos + a sin).
    """
    half = rotary_dim // 2
    if interleaved:
        with tir.serial(0, half) as i:
            a, b = bind(head[2 * i]), bind(head[2 * i + 1])
            first, second = _rotated(a, b, bind(cos[row, i]), bind(sin[row, i]))
            store(head, first, 2 * i)
            store(head, second, 2 * i + 1)
        return

    def rotate(offset: Expr | int, count: int) -> None:
        a, b = bind(load_part(head, count, offset)), bind(load_part(head, count, half + offset))
        c, s = bind(load_part(cos, count, row, offset)), bind(load_part(sin, count, row, offset))
        first, second = _rotated(a, b, c, s)
        store_part(head, first, count, offset)
        store_part(head, second, count, half + offset)

    for_vectors(half, rotate)


def _rotated(a: Expr, b: Expr, cos: Expr, sin: Expr) -> tuple[Expr, Expr]:
    negated = bind(like(0.0, b) - b)
    return bind(fma(a, cos, bind(negated * sin))), bind(fma(b, cos, bind(a * sin)))
