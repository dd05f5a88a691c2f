"""Is a graph in the dense form of docs/normal-form.md, and if not, what is nearest to blame?"""

from __future__ import annotations

from collections.abc import Container

import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.experts import values_of_experts
from optc.ir.functions import DOMAIN, is_op
from optc.passes.canonicalize.dataflow import MISS, axis_of, dims, rank, uses

_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Pow", "Neg", "Abs", "Reciprocal", "Sqrt", "Min", "Max")
_FUNCTIONS = ("Tanh", "Sigmoid", "Gelu", "Relu", "Erf", "Exp", "Cos", "Sin", "Softplus", "Clip")
_STEPS = ("Floor", "Log", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Where")
_ELEMENT_WISE = frozenset({*_ARITHMETIC, *_FUNCTIONS, *_STEPS, "Cast", "Identity"})
_TOKEN_WISE = frozenset(
    {"RMSNormalization", "LayerNormalization", "RotaryEmbedding", "Unsqueeze", "Squeeze"}
)
_LAST_AXIS = frozenset({"Split", "Slice", "Concat"})
_OWN = frozenset(
    {
        *("Attention", "CrossAttention", "HeadRMSNorm", "HeadConcat", "GatedActivation"),
        *("BlockHadamard", "CausalConv", "LinearAttention"),
        *("TopKRouter", "ExpertMatMul", "CombineExperts", "PoolRows", "WindowRows"),
        *("SplitHeads", "MergeHeads"),
    }
)
#: How far from an offending node a recorded miss is looked for.
_REACH = 12


def check_dense_form(model: ir.Model) -> None:
    """Raise unless every node is of the dense form.

    Raises:
        UnsupportedError: Names the first node that is not, why, and the nearest miss of the
            finders.
    """
    by_expert = values_of_experts(model.graph)
    offending = [(node, reason) for node in model.graph if (reason := _objection(node, by_expert))]
    if not offending:
        return
    # arithmetic on shapes is left over because of what it serves: name that
    node, reason = min(offending, key=lambda pair: _is_shape(pair[0].outputs[0]))
    near = _nearest_miss(node)
    raise UnsupportedError(
        f"{reason}; nearest: {near}" if near else reason,
        where=f"{node.name} ({node.op_type})",
        hint="this part of the model follows no pattern of the passes in canonicalize",
    )


def _is_shape(value: ir.Value) -> bool:
    return value.dtype == ir.DataType.INT64 and (rank(value) or 0) < 2


def _objection(node: ir.Node, by_expert: Container[ir.Value]) -> str | None:
    """Why ``node`` is not of the dense form; None if it is.

    Values ``by_expert`` [B, S, k, N] have an axis of chosen experts.
    """
    if any(rank(value) == 4 and value not in by_expert for value in node.outputs):
        return f"a value {dims(node.outputs[0])} with an axis of heads is left"
    if node.domain == DOMAIN:
        return None if node.op_type in _OWN else "an operator that belongs to later stages"
    if node.domain:
        return f"an operator of domain {node.domain}"
    if node.op_type in _ELEMENT_WISE or node.op_type in _TOKEN_WISE:
        return None
    if node.op_type == "MatMul":
        weight = node.inputs[1]
        constant = weight is not None and weight.const_value is not None and rank(weight) == 2
        return None if constant else "a product of two computed values is not a linear layer"
    if node.op_type == "Gather":
        axis = axis_of(node, node.outputs[0], 0)
        return None if axis == 0 else f"rows gathered along axis {axis} are not a lookup of tokens"
    if node.op_type in _LAST_AXIS:
        return _not_last_axis(node)
    return "not an operator of the dense form"


def _not_last_axis(node: ir.Node) -> str | None:
    value = node.outputs[0]
    if is_op(node, "Slice"):
        source = node.inputs[0]
        lead = dims(source)[:-1] if source is not None else []
        return None if lead == dims(value)[:-1] else "it slices another axis than the last"
    last = axis_of(node, value, 0) == (rank(value) or 0) - 1
    return None if last else f"{node.op_type} along another axis than the last"


def _nearest_miss(node: ir.Node) -> str:
    """The miss recorded closest to ``node`` along its readers and operands."""
    seen, front = {node}, [node]
    for _ in range(_REACH):
        for candidate in front:
            if MISS in candidate.meta:
                return f"{candidate.name}: {candidate.meta[MISS]}"
        following: list[ir.Node] = []
        for candidate in front:
            for other in (
                *(reader for value in candidate.outputs for reader in uses(value)),
                *(v.producer() for v in candidate.inputs if v is not None),
            ):
                if other is not None and other not in seen:
                    seen.add(other)
                    following.append(other)
        front = following
    return ""
