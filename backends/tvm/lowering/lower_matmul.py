"""Lowering of matmuls, embeddings and row gathers."""

from __future__ import annotations

import onnx_ir as ir

from optc.backends.tvm.lowering.quantized_operands import (
    FLOATS,
    group_check,
    is_two_level,
    packed_form,
    weight_parts,
    zero_form,
)
from optc.backends.tvm.lowering.walk import (
    SUM_WIDTH,
    Handler,
    Lowering,
    Refused,
    round_up,
    rows_of,
    width_of,
)
from optc.backends.tvm.program import Tensor
from optc.backends.tvm.weights.weight_layouts import (
    float_weight,
    integer_weight,
    table_weight,
    two_level_weight,
)
from optc.backends.tvm.weights.weights_file import PackedWeight
from optc.ir.functions import operand


def _bias(lowering: Lowering, value: ir.Value | None, n: int) -> list[Tensor]:
    if value is None:
        return []
    bias = lowering.tensor(value)
    if bias.shape != (n,):
        raise Refused(f"the bias has shape {list(bias.shape)}, not [{n}]")
    return [bias]


def _following_bias(node: ir.Node, n: int) -> tuple[ir.Node, ir.Value] | None:
    """The Add of a constant [N] that is the only user of the matmul, and that constant."""
    users = list(node.outputs[0].uses())
    if len(users) != 1 or users[0].node.op_type != "Add" or node.outputs[0].is_graph_output():
        return None
    add, index = users[0].node, users[0].idx
    other = add.inputs[1 - index]
    constant = None if other is None else ir.convenience.get_const_tensor(other)
    if other is None or constant is None or tuple(constant.shape.numpy()) != (n,):
        return None
    return add, other


def _float_matmul(lowering: Lowering, node: ir.Node) -> None:
    """MatMul and optc::Bf16MatMul: x [T, K] times a constant seen as [K, N]."""
    x = lowering.tensor(node.inputs[0])
    value = node.inputs[1]
    weight = lowering.initializer(value, "weight")
    if len(weight.shape) != 2 or ir.DataType(weight.dtype) not in FLOATS:
        raise Refused(f"no matmul for a weight {weight.dtype} {list(weight.shape)}")
    k, n = (int(d) for d in weight.shape.numpy())
    if width_of(x) != k:
        raise Refused(f"x has {width_of(x)} columns and the weight {k} rows")
    result, bias = node.outputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    following = None if node.domain else _following_bias(node, n)
    if following is not None:
        add, bias = following
        lowering.done.add(add)
        result = add.outputs[0]
    packed = _packed_floats(lowering, value, weight)
    biases = _bias(lowering, bias, n)
    dtype = "bfloat16" if ir.DataType(weight.dtype) == ir.DataType.BFLOAT16 else "float32"
    config = {"n": n, "k": k, "weight_dtype": dtype, "bias": bool(biases)}
    outputs = [("float32", (rows_of(x), n))]
    (out,) = lowering.call("float_matmul", config, [x, *packed, *biases], outputs)
    lowering.tensors[result] = out


def _packed_integers(lowering: Lowering, node: ir.Node) -> tuple[tuple[Tensor, ...], int, int]:
    """The packed weight of a quantized matmul or lookup, and its K and N."""
    parts = weight_parts(lowering, node)
    k, n = (int(d) for d in parts.values.shape.numpy())
    values = operand(node, "weight")
    name = f"{values.name if values else ''}.packed"
    dense = two_level_weight if is_two_level(lowering, node) else integer_weight

    def pack() -> PackedWeight:
        return lowering.sparse.packed(name, parts) or dense(name, parts)

    return lowering.weight(name, pack), k, n


def _zero_form(packed: tuple[Tensor, ...]) -> dict[str, bool]:
    return zero_form(zeros=len(packed) == 3, floats=packed[-1].dtype == "float16")


def _is_sparse(packed: tuple[Tensor, ...]) -> bool:
    return packed[0].dtype == "uint64"


def _integer_matmul(lowering: Lowering, node: ir.Node) -> None:
    """optc::QuantizedMatMul: q, s, weight, w_scale, w_zero_point?, bias?, w_group_scale?. Rows of
    16 bits are multiplied as two of 8, whose results are added."""
    q, s = lowering.tensor(node.inputs[0]), lowering.tensor(node.inputs[1])
    sums = lowering.sums.get(q.name)
    if sums is None:
        raise Refused("its activations do not come from a quantizing kernel")
    packed, k, n = _packed_integers(lowering, node)
    if width_of(q) != round_up(k, SUM_WIDTH):
        raise Refused(f"q has {width_of(q)} columns and the weight {k} rows")
    biases, pairs = _bias(lowering, operand(node, "bias"), n), lowering.pairs.get(q.name)
    own = [] if pairs else biases
    config: dict[str, int | bool] = {
        "n": n,
        "k": k,
        **packed_form(lowering, node),
        **_zero_form(packed),
        "bias": bool(own),
    }
    kernel = "int_matmul"
    if _is_sparse(packed):
        kernel = "sparse_matmul"
        config = {name: config[name] for name in ("n", "k", "bias")}
    elif is_two_level(lowering, node):
        kernel = "two_level_matmul"
        config = {name: config[name] for name in ("n", "k", "bits", "group_size", "bias")}
    outputs = [("float32", (rows_of(q, "int8"), n))]
    (out,) = lowering.call(kernel, config, [q, s, sums, *packed, *own], outputs)
    if pairs:
        config = {"width": n, "bias": bool(biases)}
        (out,) = lowering.call("pair_sum", config, [out, *biases], [("float32", (pairs, n))])
    lowering.tensors[node.outputs[0]] = out


def _bf16_gather(lowering: Lowering, node: ir.Node) -> None:
    """optc::Bf16Gather: tokens and the head's weight [D, V], whose packed copy is shared."""
    tokens, value = lowering.tensor(node.inputs[0]), node.inputs[1]
    weight = lowering.initializer(value, "weight")
    if ir.DataType(weight.dtype) != ir.DataType.BFLOAT16 or len(weight.shape) != 2:
        raise Refused(f"no packed lookup in {weight.dtype} {list(weight.shape)}")
    width, vocab = (int(d) for d in weight.shape.numpy())
    packed = _packed_floats(lowering, value, weight)
    config = {"vocab": vocab, "width": width, "dtype": "bfloat16", "packed": True}
    outputs = [("float32", (tokens.shape[0], width))]
    (out,) = lowering.call("embedding", config, [*packed, tokens], outputs)
    lowering.tensors[node.outputs[0]] = out


def _packed_floats(
    lowering: Lowering, value: ir.Value | None, weight: ir.TensorProtocol
) -> tuple[Tensor, ...]:
    """The packed weight of a float matmul, and of a lookup that shares it."""
    name = f"{value.name if value else ''}.matmul"

    def pack() -> PackedWeight:
        lowering.sparse.float_weight(name, weight)
        return float_weight(name, weight)

    return lowering.weight(name, pack)


def _quantized_gather(lowering: Lowering, node: ir.Node) -> None:
    """optc::QuantizedGather: tokens, the head's weight [D, V] and its parameters."""
    tokens = lowering.tensor(node.inputs[0])
    packed, width, vocab = _packed_integers(lowering, node)
    config: dict[str, int | bool] = {"vocab": vocab, "width": width}
    kernel = "sparse_embedding"
    if not _is_sparse(packed):
        kernel = "quantized_embedding"
        config |= packed_form(lowering, node)
        config |= _zero_form(packed)
        if "minimums" in config:
            raise Refused("no packed lookup with float zero points")
        config["two_level"] = is_two_level(lowering, node)
    outputs = [("float32", (tokens.shape[0], width))]
    (out,) = lowering.call(kernel, config, [tokens, *packed], outputs)
    lowering.tensors[node.outputs[0]] = out


def _gather_check(node: ir.Node) -> str:
    axis = node.attributes.get_int("axis", 0)
    return "" if axis == 0 else f"Gather along axis {axis}"


def _gather(lowering: Lowering, node: ir.Node) -> None:
    """Rows of an embedding table, or of computed rows."""
    data, indices = node.inputs[0], lowering.tensor(node.inputs[1])
    if indices.dtype != "int32" or len(indices.shape) != 1:
        raise Refused(f"indices are {indices.dtype} {list(indices.shape)}, not int32 rows")
    constant = None if data is None else ir.convenience.get_const_tensor(data)
    if constant is None:
        x = lowering.tensor(data)
        rows_of(x)
        outputs = [("float32", (indices.shape[0], width_of(x)))]
        (out,) = lowering.call("gather_rows", {"width": width_of(x)}, [x, indices], outputs)
    else:
        out = _embedding(lowering, f"{data.name if data else ''}", constant, indices)
    lowering.tensors[node.outputs[0]] = out


def _embedding(
    lowering: Lowering, name: str, constant: ir.TensorProtocol, tokens: Tensor
) -> Tensor:
    if len(constant.shape) != 2 or ir.DataType(constant.dtype) not in FLOATS:
        raise Refused(f"no lookup in a table {constant.dtype} {list(constant.shape)}")
    vocab, width = (int(d) for d in constant.shape.numpy())
    packed = lowering.weight(f"{name}.table", lambda: table_weight(f"{name}.table", constant))
    # a bfloat16 table is widened by the lookup itself; a Cast that follows finds float32
    dtype = "bfloat16" if packed[0].dtype == "uint16" else "float32"
    config = {"vocab": vocab, "width": width, "dtype": dtype}
    outputs = [("float32", (tokens.shape[0], width))]
    (out,) = lowering.call("embedding", config, [*packed, tokens], outputs)
    return out


HANDLERS = {
    ("", "MatMul"): Handler(_float_matmul),
    ("optc", "Bf16MatMul"): Handler(_float_matmul),
    ("optc", "Bf16Gather"): Handler(_bf16_gather),
    ("optc", "QuantizedMatMul"): Handler(_integer_matmul, group_check),
    ("optc", "QuantizedGather"): Handler(_quantized_gather, group_check),
    ("", "Gather"): Handler(_gather, _gather_check),
}
