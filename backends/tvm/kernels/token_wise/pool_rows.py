"""Pooling: the rows of each sequence become one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    bind,
    for_rows,
    kernel,
    register,
    splat,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.errors import UnsupportedError

#: Values read below which a parallel region costs more than it saves.
_SERIAL_WORK = 1 << 16


@dataclass(frozen=True)
class PoolRows:
    """Pooling of rows of ``width`` values; ``mode`` is ``mean``, ``max``, ``first`` or ``last``.
    The first ``skip`` rows of a sequence do not count."""

    width: int
    mode: str
    skip: int = 0


_MODES: dict[str, Callable[[Expr, Expr], Expr]] = {
    "mean": lambda a, b: a + b,
    "max": lambda a, b: tir.max(a, b),
    "first": lambda a, b: a,
    "last": lambda a, b: b,
}


def pool_rows(config: PoolRows, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,D], query_starts i32 [B+1] -> out f32 [B,D].

    Sequence b has the rows ``query_starts[b]`` to ``query_starts[b + 1]``, more than are skipped.
    Means are sums in the order of the rows, over their number. ``isa`` changes nothing: every
    instruction set runs the same operations.

    Raises:
        UnsupportedError: No such mode; the message lists those that exist.
    """
    width, mode = config.width, config.mode
    if mode not in _MODES:
        raise UnsupportedError(
            f"pooling {mode!r} has no CPU kernel",
            where="PoolRows",
            hint=f"one of {', '.join(_MODES)}",
        )
    with kernel(f"pool_rows_{mode}") as builder:
        rows, bounds = builder.size(), builder.size()
        x = builder.argument("x", (rows, width))
        starts = builder.argument("query_starts", (bounds,), "int32")
        out = builder.argument("out", (bounds - 1, width))

        def body(sequence: Expr) -> None:
            first, end = bind(starts[sequence] + config.skip), bind(starts[sequence + 1])
            begin = bind(end - 1) if mode == "last" else first
            stop = bind(first + 1) if mode == "first" else end

            def pool(offset: Expr | int, count: int) -> None:
                total = register(load_part(x, count, begin, offset))
                with tir.serial(begin + 1, stop) as row:
                    total.set(_MODES[mode](total.get(), load_part(x, count, row, offset)))
                value = total.get()
                if mode == "mean":
                    value = value / splat(tir.cast(end - first, "float32"))
                store_part(out, value, count, sequence, offset)

            for_vectors(width, pool)

        for_rows(bounds - 1, rows * width > _SERIAL_WORK, body)
    return builder.finish()
