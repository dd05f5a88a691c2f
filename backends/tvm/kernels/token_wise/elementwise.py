"""Element-wise operations on rows of float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl import math
from optc.backends.tvm.kernels.dsl.script import SERIAL_WORK, Expr, bind, for_rows, kernel, like
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.errors import UnsupportedError


@dataclass(frozen=True)
class Elementwise:
    """One operation on rows.

    Attributes:
        operation: Of two inputs: ``add``, ``sub``, ``mul``, ``div``; of one: ``tanh``,
            ``sigmoid``, ``exp``, ``erf``, ``silu``, ``gelu``, ``gelu_tanh``, ``scale``
            (times ``constant``), ``softcap`` (``constant * tanh(x / constant)``).
        width: K, values of a row.
        constant: The constant of ``scale`` and ``softcap``.
    """

    operation: str
    width: int
    constant: float = 0.0


_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}
_UNARY: dict[str, Callable[[Expr, float], Expr]] = {
    "tanh": lambda a, _: math.tanh(a),
    "sigmoid": lambda a, _: math.sigmoid(a),
    "exp": lambda a, _: math.exp(a),
    "erf": lambda a, _: math.erf(a),
    "silu": lambda a, _: math.silu(a),
    "gelu": lambda a, _: math.gelu(a),
    "gelu_tanh": lambda a, _: math.gelu_tanh(a),
    "scale": lambda a, constant: a * like(constant, a),
    "softcap": lambda a, constant: math.softcap(a, constant),
}


def elementwise(config: Elementwise, isa: Isa) -> tvm.tirx.PrimFunc:
    """a f32 [T,K], [b f32 [T,K]] -> out f32 [T,K].

    ``isa`` changes nothing: every instruction set runs the same operations.

    Raises:
        UnsupportedError: No such operation; the message lists those that exist.
    """
    width, name = config.width, config.operation
    if name not in _BINARY and name not in _UNARY:
        raise UnsupportedError(
            f"operation {name!r} has no CPU kernel",
            where="Elementwise",
            hint=f"one of {', '.join((*_BINARY, *_UNARY))}",
        )
    with kernel(f"elementwise_{name}") as builder:
        rows = builder.size()
        a = builder.argument("a", (rows, width))
        b = builder.argument("b", (rows, width)) if name in _BINARY else None
        out = builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            def write(offset: Expr | int, count: int) -> None:
                value = bind(load_part(a, count, row, offset))
                if b is None:
                    value = _UNARY[name](value, config.constant)
                else:
                    value = _BINARY[name](value, load_part(b, count, row, offset))
                store_part(out, value, count, row, offset)

            for_vectors(width, write)

        for_rows(rows, rows * width > SERIAL_WORK, body)
    return builder.finish()
