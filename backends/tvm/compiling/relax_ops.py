"""Operators without a kernel of their own, left to TVM's own lowering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from optc.backends.tvm.program import Call

_UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": relax.op.abs,
    "cos": relax.op.cos,
    "erf": relax.op.erf,
    "exp": relax.op.exp,
    "floor": relax.op.floor,
    "gelu": relax.op.nn.gelu,
    "gelu_tanh": relax.op.nn.gelu_tanh,
    "log": relax.op.log,
    "logical_not": relax.op.logical_not,
    "negative": relax.op.negative,
    "relu": relax.op.nn.relu,
    "sigmoid": relax.op.sigmoid,
    "silu": relax.op.nn.silu,
    "sin": relax.op.sin,
    "softplus": relax.op.nn.softplus,
    "sqrt": relax.op.sqrt,
    "tanh": relax.op.tanh,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": relax.op.add,
    "divide": relax.op.divide,
    "greater": relax.op.greater,
    "greater_equal": relax.op.greater_equal,
    "less": relax.op.less,
    "less_equal": relax.op.less_equal,
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
    "multiply": relax.op.multiply,
    "power": relax.op.power,
    "subtract": relax.op.subtract,
}


def relax_call(call: Call, operands: list[Any]) -> Any:
    """The Relax expression of ``call``, whose kernel is ``relax.<op>``.

    Binary operators and ``where`` may state an operand as a float: ``left`` or ``right`` of the
    config.
    """
    name = call.kernel.removeprefix("relax.")
    if name in _UNARY:
        return _UNARY[name](operands[0])
    if name in _BINARY:
        left, right = _sides(call, operands)
        return _BINARY[name](left, right)
    if name == "astype":
        return relax.op.astype(operands[0], call.config["dtype"])
    if name == "expand_dims":
        return relax.op.expand_dims(operands[0], call.config["axis"])
    if name == "where":
        return relax.op.where(operands[0], *_sides(call, operands[1:]))
    if name == "concat":
        return relax.op.concat(operands, axis=-1)
    if name == "slice":
        # with a symbolic axis, TVM does not take an axis that is counted from the end
        axis, start, stop = (call.config[key] for key in ("axis", "start", "stop"))
        return relax.op.strided_slice(operands[0], axes=[axis], begin=[start], end=[stop])
    raise ValueError(f"no Relax operator for {call.kernel}")


def _sides(call: Call, operands: list[Any]) -> tuple[Any, Any]:
    rest = list(operands)
    left, right = (
        relax.const(call.config[side], "float32") if side in call.config else rest.pop(0)
        for side in ("left", "right")
    )
    return left, right
