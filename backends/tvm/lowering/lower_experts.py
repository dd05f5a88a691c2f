"""Lowering of mixtures of experts: router, plan of the rows by expert, matmuls, combination.

What the graph sees as [T, k, N] is here rows [k T, N], a token's k one after the other, so that
operators between an expert's matmuls are those of any rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    divided,
    round_up,
    rows_of,
    times,
    width_of,
)
from optc.backends.tvm.program import Tensor
from optc.backends.tvm.weights.weight_layouts import (
    expert_biases,
    float_weight,
    integer_weight,
    two_level_weight,
)
from optc.backends.tvm.weights.weights_file import PackedWeight
from optc.ir.functions import operand

_SCORINGS = ("softmax", "sigmoid", "softmax_after", "sigmoid_after", "sparse_mixer")
_GROUP_SCORES = ("max", "top2_sum")


def _router_check(node: ir.Node) -> str:
    scoring = node.attributes.get_string("scoring", "")
    group_score = node.attributes.get_string("group_score", "")
    if scoring not in _SCORINGS:
        return f"no router scores by {scoring!r}"
    if node.attributes.get_int("groups", 1) != 1 and group_score not in _GROUP_SCORES:
        return f"no router scores groups by {group_score!r}"
    return ""


def _router(lowering: Lowering, node: ir.Node) -> None:
    """optc::TopKRouter: logits [T, E] and a correction_bias? to weights and experts [T, k]."""
    logits = lowering.tensor(node.inputs[0])
    rows, experts = rows_of(logits), width_of(logits)
    get = node.attributes.get_int
    chosen, groups, top_groups = get("top_k", 0), get("groups", 1), get("top_groups", 1)
    _check_groups(experts, chosen, groups, top_groups)
    bias = operand(node, "correction_bias")
    biases = [] if bias is None else [lowering.tensor(bias)]
    if biases and biases[0].shape != (experts,):
        raise Refused(f"the bias has shape {list(biases[0].shape)}, not [{experts}]")
    config: dict[str, Any] = {
        "experts": experts,
        "chosen": chosen,
        "scoring": node.attributes.get_string("scoring", ""),
        "normalize": bool(get("normalize", 0)),
        "norm_epsilon": node.attributes.get_float("norm_epsilon", 0.0),
        "scale": node.attributes.get_float("scale", 1.0),
        "groups": groups,
        "top_groups": top_groups,
        "group_score": node.attributes.get_string("group_score", ""),
        "bias": bool(biases),
    }
    if config["scoring"] == "sparse_mixer":
        config["threshold"] = node.attributes.get_float("threshold", 0.0)
    outputs = [("float32", (rows, chosen)), ("int32", (rows, chosen))]
    results = lowering.call("top_k_router", config, [logits, *biases], outputs)
    for value, result in zip(node.outputs, results, strict=True):
        lowering.tensors[value] = result


def _check_groups(experts: int, chosen: int, groups: int, top_groups: int) -> None:
    """Raises:
    Refused: So many experts cannot be chosen of so many groups.
    """
    if groups < 1 or experts % groups or not 1 <= top_groups <= groups:
        raise Refused(f"{top_groups} of {groups} groups of {experts} experts cannot be chosen")
    allowed = experts if groups == 1 else experts // groups * top_groups
    if not 1 <= chosen <= allowed:
        raise Refused(f"{chosen} experts cannot be chosen of {allowed}")


def _plan(lowering: Lowering, experts: Tensor, count: int) -> tuple[Tensor, ...]:
    """The plan of the rows by expert, made once for all matmuls of a layer."""
    if experts.name not in lowering.plans:
        rows, chosen = rows_of(experts, "int32"), width_of(experts)
        config = {"experts": count, "chosen": chosen}
        places = times(chosen, rows)
        outputs = [("int32", (places,)), ("int32", (places, 3)), ("int32", (1,))]
        lowering.plans[experts.name] = tuple(
            lowering.call("expert_plan", config, [experts], outputs)
        )
    return lowering.plans[experts.name]


@dataclass(frozen=True)
class _Matmul:
    """A matmul by experts.

    Attributes:
        kernel: Its name.
        x: Activations, their rows in the first of them.
        shape: [K, E*N] of the weight.
        form: What the kernel's configuration has beside shape and experts.
        pack: The packed weight of that name and of so many experts.
    """

    kernel: str
    x: list[Tensor]
    shape: tuple[int, int]
    form: dict[str, Any]
    pack: Callable[[str, int], PackedWeight]


def _append(lowering: Lowering, node: ir.Node, matmul: _Matmul) -> None:
    """Append the call."""
    experts, weight = lowering.tensor(operand(node, "experts")), operand(node, "weight")
    count, spread = (node.attributes.get_int(name, 0) for name in ("num_experts", "spread"))
    k, columns = matmul.shape
    if count < 1 or columns % count:
        raise Refused(f"{columns} output channels are not those of {count} experts")
    tokens, chosen = rows_of(experts, "int32"), width_of(experts)
    rows, given = times(chosen, tokens), matmul.x[0].shape[0]
    if given != (tokens if spread else rows):
        raise Refused(f"x has {given} rows, for {chosen} experts of each of {tokens} tokens")
    bias = operand(node, "bias")
    biases = () if bias is None else _biases(lowering, bias, columns, count)
    name = f"{weight.name if weight else ''}.experts"
    packed = lowering.weight(name, lambda: matmul.pack(name, count))
    config = {
        "n": columns // count,
        "k": k,
        "bias": bool(biases),
        "experts": count,
        "chosen": chosen,
        "spread": bool(spread),
        **matmul.form,
    }
    inputs = [*matmul.x, *_plan(lowering, experts, count), *packed, *biases]
    outputs = [("float32", (rows, columns // count))]
    (out,) = lowering.call(matmul.kernel, config, inputs, outputs)
    lowering.tensors[node.outputs[0]] = out


def _biases(lowering: Lowering, value: ir.Value, columns: int, experts: int) -> tuple[Tensor, ...]:
    constant = lowering.initializer(value, "bias")
    if tuple(constant.shape.numpy()) != (columns,):
        raise Refused(f"the bias has shape {list(constant.shape)}, not [{columns}]")
    name = f"{value.name}.experts"
    return lowering.weight(name, lambda: expert_biases(name, constant, experts))


def _float_experts(lowering: Lowering, node: ir.Node) -> None:
    """optc::ExpertMatMul and optc::Bf16ExpertMatMul: x, experts, weight [K, E*N], bias?."""
    x, value = lowering.tensor(node.inputs[0]), operand(node, "weight")
    weight = lowering.initializer(value, "weight")
    if len(weight.shape) != 2 or ir.DataType(weight.dtype) not in FLOATS:
        raise Refused(f"no matmul for a weight {weight.dtype} {list(weight.shape)}")
    k, columns = (int(d) for d in weight.shape.numpy())
    rows_of(x)
    if width_of(x) != k:
        raise Refused(f"x has {width_of(x)} columns and the weight {k} rows")
    bfloat16 = ir.DataType(weight.dtype) == ir.DataType.BFLOAT16
    form = {"weight_dtype": "bfloat16" if bfloat16 else "float32"}
    matmul = _Matmul(
        "float_experts", [x], (k, columns), form, lambda name, e: float_weight(name, weight, e)
    )
    _append(lowering, node, matmul)


def _integer_experts(lowering: Lowering, node: ir.Node) -> None:
    """optc::QuantizedExpertMatMul: q, s, experts, weight [K, E*N] and its parameters."""
    q, s = lowering.tensor(node.inputs[0]), lowering.tensor(node.inputs[1])
    if q.name in lowering.pairs:
        raise Refused("experts read activations of 8 bits")
    sums = lowering.sums.get(q.name)
    if sums is None:
        raise Refused("its activations do not come from a quantizing kernel")
    parts = weight_parts(lowering, node)
    k, columns = (int(d) for d in parts.values.shape.numpy())
    if width_of(q) != round_up(k, SUM_WIDTH):
        raise Refused(f"q has {width_of(q)} columns and the weight {k} rows")
    form, two_level = packed_form(lowering, node), is_two_level(lowering, node)
    if not two_level:
        zeros = parts.zero_points is not None and parts.group_scales is None
        form |= zero_form(zeros=zeros, floats=parts.float_zeros)
    dense = two_level_weight if two_level else integer_weight
    kernel = "two_level_experts" if two_level else "int_experts"
    x, pack = [q, s, sums], lambda name, experts: dense(name, parts, experts)
    _append(lowering, node, _Matmul(kernel, x, (k, columns), form, pack))


def _combine(lowering: Lowering, node: ir.Node) -> None:
    """optc::CombineExperts: y [T, k, N] and weights [T, k] to [T, N]."""
    y, weights = lowering.tensor(node.inputs[0]), lowering.tensor(node.inputs[1])
    tokens, chosen = rows_of(weights), width_of(weights)
    if rows_of(y) != times(chosen, tokens):
        raise Refused(f"{y.shape[0]} rows are not {chosen} of each of {tokens} tokens")
    config = {"width": width_of(y), "chosen": chosen}
    outputs = [("float32", (tokens, width_of(y)))]
    (out,) = lowering.call("combine_experts", config, [y, weights], outputs)
    lowering.tensors[node.outputs[0]] = out


def _split_heads(lowering: Lowering, node: ir.Node) -> None:
    """optc::SplitHeads: x [T, H*D] to rows [H T, D], and the head of each [T, H]."""
    x, heads = lowering.tensor(node.inputs[0]), node.attributes.get_int("num_heads", 0)
    tokens = rows_of(x)
    if heads < 1 or width_of(x) % heads:
        raise Refused(f"{width_of(x)} columns are not those of {heads} heads")
    config = {"heads": heads, "width": width_of(x) // heads}
    outputs = [("float32", (times(heads, tokens), config["width"])), ("int32", (tokens, heads))]
    results = lowering.call("split_heads", config, [x], outputs)
    for value, result in zip(node.outputs, results, strict=True):
        lowering.tensors[value] = result


def _merge_heads(lowering: Lowering, node: ir.Node) -> None:
    """optc::MergeHeads: rows [H T, D] to [T, H*D]."""
    x = lowering.tensor(node.inputs[0])
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    heads = 0 if shape is None or not isinstance(shape[-2], int) else shape[-2]
    if heads < 1:
        raise Refused("the number of heads is unknown")
    config = {"heads": heads, "width": width_of(x)}
    outputs = [("float32", (divided(x.shape[0], heads), heads * width_of(x)))]
    (out,) = lowering.call("merge_heads", config, [x], outputs)
    lowering.tensors[node.outputs[0]] = out


HANDLERS = {
    ("optc", "SplitHeads"): Handler(_split_heads),
    ("optc", "MergeHeads"): Handler(_merge_heads),
    ("optc", "TopKRouter"): Handler(_router, _router_check),
    ("optc", "ExpertMatMul"): Handler(_float_experts),
    ("optc", "Bf16ExpertMatMul"): Handler(_float_experts),
    ("optc", "QuantizedExpertMatMul"): Handler(_integer_experts, group_check),
    ("optc", "CombineExperts"): Handler(_combine),
}
