"""Lowering of element-wise operators, casts, and the cutting and joining of the last axis."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from optc.backends.tvm.lowering.walk import DTYPES, Handler, Lowering, Refused, width_of
from optc.backends.tvm.program import Dim, Tensor

_UNARY = {
    "Abs": "abs",
    "Cos": "cos",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "log",
    "Neg": "negative",
    "Not": "logical_not",
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Softplus": "softplus",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}
_BINARY = {
    "Add": "add",
    "Div": "divide",
    "Max": "maximum",
    "Min": "minimum",
    "Mul": "multiply",
    "Pow": "power",
    "Sub": "subtract",
}
_COMPARISONS = {
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
}
#: Those that have a vectorized kernel for float32 rows; the rest is left to TVM's lowering.
_ROW_KERNELS = {
    "Erf": "erf",
    "Exp": "exp",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Add": "add",
    "Div": "div",
    "Mul": "mul",
    "Sub": "sub",
}


def _is_rows(*tensors: Tensor) -> bool:
    """True if all are float32 rows of one shape."""
    first = tensors[0]
    same = all(t.shape == first.shape and t.dtype == "float32" for t in tensors)
    return same and len(first.shape) == 2 and isinstance(first.shape[1], int)


def _kernel(lowering: Lowering, operation: str, constant: float, *inputs: Tensor) -> Tensor:
    width = width_of(inputs[0])
    config = {"operation": operation, "width": width, "constant": constant}
    shape = ("float32", inputs[0].shape)
    return lowering.call("elementwise", config, inputs, [shape])[0]


def _unary(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    if _is_rows(x) and node.op_type in _ROW_KERNELS:
        out = _kernel(lowering, _ROW_KERNELS[node.op_type], 0.0, x)
    else:
        name = f"relax.{_UNARY[node.op_type]}"
        (out,) = lowering.call(name, {}, [x], [(x.dtype, x.shape)])
    lowering.tensors[node.outputs[0]] = out


def _gelu(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    how = node.attributes.get_string("approximate", "none")
    operation = "gelu_tanh" if how == "tanh" else "gelu"
    if _is_rows(x):
        out = _kernel(lowering, operation, 0.0, x)
    else:
        (out,) = lowering.call(f"relax.{operation}", {}, [x], [(x.dtype, x.shape)])
    lowering.tensors[node.outputs[0]] = out


def _reciprocal(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    (out,) = lowering.call("relax.divide", {"left": 1.0}, [x], [(x.dtype, x.shape)])
    lowering.tensors[node.outputs[0]] = out


def _softcap(lowering: Lowering, node: ir.Node) -> tuple[list[ir.Node], float] | None:
    """The Tanh and Mul behind a Div that make ``c * tanh(x / c)``, and c."""
    cap = lowering.scalar(node.inputs[1])
    chain: list[ir.Node] = []
    value = node.outputs[0]
    for op_type in ("Tanh", "Mul"):
        users = list(value.uses())
        if len(users) != 1 or users[0].node.op_type != op_type or value.is_graph_output():
            return None
        chain.append(users[0].node)
        value = users[0].node.outputs[0]
    scalars = [lowering.scalar(v) for v in chain[1].inputs]
    return (chain, cap) if cap is not None and cap in scalars else None


def _binary(lowering: Lowering, node: ir.Node) -> None:
    if node.op_type == "Div" and lowering.scalar(node.inputs[1]) is not None:
        found = _softcap(lowering, node)
        x = lowering.tensor(node.inputs[0])
        if found is not None and _is_rows(x):
            (tanh, mul), cap = found
            lowering.done.update((tanh, mul))
            lowering.tensors[mul.outputs[0]] = _kernel(lowering, "softcap", cap, x)
            return
    lowering.tensors[node.outputs[0]] = _binary_value(lowering, node)


def _binary_value(lowering: Lowering, node: ir.Node) -> Tensor:
    scalars = [lowering.scalar(v) for v in node.inputs]
    compares = node.op_type in _COMPARISONS
    name = f"relax.{_COMPARISONS.get(node.op_type) or _BINARY[node.op_type]}"
    for side, index in (("right", 1), ("left", 0)):
        constant = scalars[index]
        if constant is not None:
            x = lowering.tensor(node.inputs[1 - index])
            if x.dtype != "float32":
                raise Refused(f"arithmetic on {x.dtype}")
            if node.op_type == "Mul" and _is_rows(x):
                return _kernel(lowering, "scale", constant, x)
            dtype = "bool" if compares else x.dtype
            return lowering.call(name, {side: constant}, [x], [(dtype, x.shape)])[0]
    a, b = lowering.tensor(node.inputs[0]), lowering.tensor(node.inputs[1])
    if _is_rows(a, b) and node.op_type in _ROW_KERNELS:
        return _kernel(lowering, _ROW_KERNELS[node.op_type], 0.0, a, b)
    if a.dtype != b.dtype:
        raise Refused(f"operands of types {a.dtype} and {b.dtype}")
    dtype = "bool" if compares else a.dtype
    return lowering.call(name, {}, [a, b], [(dtype, _broadcast(a, b))])[0]


def _clip(lowering: Lowering, node: ir.Node) -> None:
    """Maximum with the lower bound, minimum with the upper one, where they are given."""
    value = lowering.tensor(node.inputs[0])
    for index, name in ((1, "relax.maximum"), (2, "relax.minimum")):
        bound = node.inputs[index] if index < len(node.inputs) else None
        if bound is None:
            continue
        constant = lowering.scalar(bound)
        if constant is None or value.dtype != "float32":
            raise Refused("Clip needs constant bounds, on float32")
        (value,) = lowering.call(name, {"right": constant}, [value], [("float32", value.shape)])
    lowering.tensors[node.outputs[0]] = value


def _where(lowering: Lowering, node: ir.Node) -> None:
    condition = lowering.tensor(node.inputs[0])
    config: dict[str, float] = {}
    operands = [condition]
    shape = condition.shape
    for side, value in zip(("left", "right"), node.inputs[1:], strict=True):
        constant = lowering.scalar(value)
        if constant is not None:
            config[side] = constant
            continue
        operands.append(lowering.tensor(value))
        if operands[-1].dtype != "float32":
            raise Refused(f"a choice between values of {operands[-1].dtype}")
        shape = _broadcast(operands[-1], replace(condition, shape=shape))
    (out,) = lowering.call("relax.where", config, operands, [("float32", shape)])
    lowering.tensors[node.outputs[0]] = out


def _broadcast(a: Tensor, b: Tensor) -> tuple[Dim, ...]:
    """Shape of ``a`` and ``b`` broadcast against each other.

    Raises:
        Refused: They do not broadcast.
    """
    rank = max(len(a.shape), len(b.shape))
    left = (1,) * (rank - len(a.shape)) + a.shape
    right = (1,) * (rank - len(b.shape)) + b.shape
    shape: list[Dim] = []
    for x, y in zip(left, right, strict=True):
        if x != y and 1 not in (x, y):
            raise Refused(f"shapes {list(a.shape)} and {list(b.shape)} do not broadcast")
        shape.append(y if x == 1 else x)
    return tuple(shape)


def _cast(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    to = ir.DataType(node.attributes.get_int("to", 0))
    if to not in DTYPES:
        raise Refused(f"no cast to {to}")
    if DTYPES[to] != x.dtype:
        config = {"dtype": DTYPES[to]}
        (x,) = lowering.call("relax.astype", config, [x], [(DTYPES[to], x.shape)])
    lowering.tensors[node.outputs[0]] = x


def _identity(lowering: Lowering, node: ir.Node) -> None:
    lowering.tensors[node.outputs[0]] = lowering.tensor(node.inputs[0])


def _constant(lowering: Lowering, node: ir.Node) -> None:
    """Nothing to do: users read the constant when they need it."""


def _unsqueeze(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    axes = lowering.integers(node.inputs[1])
    if axes is None or len(axes) != 1:
        raise Refused("Unsqueeze needs one constant axis")
    axis = axes[0] % (len(x.shape) + 1)
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    (out,) = lowering.call("relax.expand_dims", {"axis": axis}, [x], [(x.dtype, shape)])
    lowering.tensors[node.outputs[0]] = out


def _axis_check(node: ir.Node) -> str:
    axis = node.attributes.get_int("axis", -1)
    return "" if axis in (-1, 1) else f"{node.op_type} along axis {axis}, not the last"


def _cut(lowering: Lowering, x: Tensor, start: int, stop: int) -> Tensor:
    if (start, stop) == (0, width_of(x)):
        return x
    config = {"start": start, "stop": stop, "axis": len(x.shape) - 1}
    shape = (*x.shape[:-1], stop - start)
    return lowering.call("relax.slice", config, [x], [(x.dtype, shape)])[0]


def _split(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    sizes = lowering.integers(node.inputs[1]) if len(node.inputs) > 1 else None
    if sizes is None:
        parts = len(node.outputs)
        each = -(-width_of(x) // parts)
        sizes = [each] * (parts - 1) + [width_of(x) - each * (parts - 1)]
    start = 0
    for size, value in zip(sizes, node.outputs, strict=True):
        lowering.tensors[value] = _cut(lowering, x, start, start + size)
        start += size


def _slice(lowering: Lowering, node: ir.Node) -> None:
    x = lowering.tensor(node.inputs[0])
    constants = [lowering.integers(v) for v in node.inputs[1:]]
    starts, stops = constants[0], constants[1]
    axes = constants[2] if len(constants) > 2 else [0]
    steps = constants[3] if len(constants) > 3 else [1]
    last = len(x.shape) - 1
    if starts is None or stops is None or axes not in ([-1], [last]) or steps != [1]:
        raise Refused("Slice must cut the last axis at constant bounds with step 1")
    start, stop, _ = slice(starts[0], stops[0]).indices(width_of(x))
    lowering.tensors[node.outputs[0]] = _cut(lowering, x, start, stop)


def _concat(lowering: Lowering, node: ir.Node) -> None:
    parts = [lowering.tensor(v) for v in node.inputs]
    if any(p.shape[:-1] != parts[0].shape[:-1] or p.dtype != parts[0].dtype for p in parts):
        raise Refused("Concat of parts that differ in more than the last axis")
    shape = (*parts[0].shape[:-1], sum(width_of(p) for p in parts))
    (out,) = lowering.call("relax.concat", {}, parts, [(parts[0].dtype, shape)])
    lowering.tensors[node.outputs[0]] = out


HANDLERS = {
    **{("", op): Handler(_unary) for op in _UNARY},
    **{("", op): Handler(_binary) for op in (*_BINARY, *_COMPARISONS)},
    ("", "Clip"): Handler(_clip),
    ("", "Reciprocal"): Handler(_reciprocal),
    ("", "Where"): Handler(_where),
    ("", "Gelu"): Handler(_gelu),
    ("", "Cast"): Handler(_cast),
    ("", "Constant"): Handler(_constant),
    ("", "Identity"): Handler(_identity),
    ("", "Unsqueeze"): Handler(_unsqueeze),
    ("", "Split"): Handler(_split, _axis_check),
    ("", "Slice"): Handler(_slice),
    ("", "Concat"): Handler(_concat, _axis_check),
}
