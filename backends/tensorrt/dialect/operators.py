"""The allow-list: operators, how many inputs they may have, and their attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rule:
    """The part of an operator that TensorRT implements.

    Attributes:
        inputs: Most inputs that it reads.
        attributes: Attributes that it reads.
        fixed: Attributes that must have this value if they are there: the only one implemented.
        outputs: Most outputs.
    """

    inputs: int
    attributes: frozenset[str] = frozenset()
    fixed: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1


def _rule(inputs: int, *attributes: str, outputs: int = 1, **fixed: Any) -> Rule:
    return Rule(inputs, frozenset(attributes), fixed, outputs)


_UNARY = (
    *("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Identity", "Log", "Neg", "Not"),
    *("Reciprocal", "Relu", "Round", "Sigmoid", "Sin", "Sqrt", "Tanh"),
)
_BINARY = (
    *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
    *("MatMul", "Max", "Min", "Mul", "Or", "Pow", "Sub"),
)
_CONSTANTS = ("value", "value_float", "value_floats", "value_int", "value_ints")

#: Standard operators.
STANDARD: dict[str, Rule] = {
    **{name: _rule(1) for name in _UNARY},
    **{name: _rule(2) for name in _BINARY},
    "Attention": _rule(
        4,
        *("scale", "q_num_heads", "kv_num_heads"),
        is_causal=0,
        softcap=0.0,
        qk_matmul_output_mode=0,
    ),
    "Cast": _rule(1, "to", saturate=1),
    "Clip": _rule(3),
    "Concat": _rule(64, "axis"),
    "Constant": _rule(0, *_CONSTANTS),
    "ConstantOfShape": _rule(1, "value"),
    "CumSum": _rule(2, "exclusive", "reverse"),
    "DequantizeLinear": _rule(3, "axis", "block_size", "output_dtype"),
    "Expand": _rule(2),
    "Gather": _rule(2, "axis"),
    "GatherElements": _rule(2, "axis"),
    "GatherND": _rule(2, "batch_dims"),
    "Gelu": _rule(1, "approximate"),
    "LayerNormalization": _rule(3, "axis", "epsilon", stash_type=1),
    "QuantizeLinear": _rule(3, "axis", "output_dtype", saturate=1, block_size=0, precision=0),
    "RMSNormalization": _rule(2, "axis", "epsilon", stash_type=1),
    "Range": _rule(3),
    "ReduceMax": _rule(2, "keepdims", noop_with_empty_axes=0),
    "ReduceMean": _rule(2, "keepdims", noop_with_empty_axes=0),
    "ReduceSum": _rule(2, "keepdims", noop_with_empty_axes=0),
    "Reshape": _rule(2, allowzero=0),
    "RotaryEmbedding": _rule(4, "interleaved", "num_heads", "rotary_embedding_dim"),
    "ScatterElements": _rule(3, "axis", reduction="none"),
    "ScatterND": _rule(3, reduction="none"),
    "Shape": _rule(1, "start", "end"),
    "Slice": _rule(5),
    "Softmax": _rule(1, "axis"),
    "Split": _rule(2, "axis", "num_outputs", outputs=64),
    "Squeeze": _rule(2),
    "Swish": _rule(1, "alpha"),
    "TensorScatter": _rule(3, "axis", mode="linear"),
    "TopK": _rule(2, "axis", "largest", "sorted", outputs=2),
    "Transpose": _rule(1, "perm"),
    "Trilu": _rule(2, "upper"),
    "Unsqueeze": _rule(2),
    "Where": _rule(3),
}

#: Operators of TensorRT's own domain ``trt``.
NATIVE: dict[str, Rule] = {
    "TRT_FP4DynamicQuantize": _rule(2, "axis", "block_size", "scale_type", outputs=2),
}

#: Why operators that one might expect are refused.
REFUSED = {
    "DynamicQuantizeLinear": "the parser has no dynamic quantization; calibrate static scales",
    "GroupQueryAttention": "its importer needs a plugin that is not there; lower it to Attention",
    "MatMulInteger": "the parser refuses it; use QuantizeLinear and DequantizeLinear",
    "MatMulNBits": "its importer needs a plugin that is not there; lower it to DequantizeLinear",
    "QLinearMatMul": "the parser refuses it; use QuantizeLinear and DequantizeLinear",
}
