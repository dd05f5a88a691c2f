"""Element-wise operations of the float32 reference, by counts: beside small products they are
a good part of its work."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from optc.ir.graph import width

#: Of each value that an operator gives; one where nothing is said. Exponentials take several.
_OF_VALUE = {
    "RMSNormalization": 4,
    "LayerNormalization": 6,
    "RotaryEmbedding": 4,
    "Sigmoid": 8,
    "Tanh": 8,
    "Erf": 8,
    "Gelu": 10,
    "Softmax": 10,
}
#: Of each logit of two models that are compared.
OF_COMPARED_LOGIT = 20
#: Of each score: scale, mask, exponential, sum and division.
_OF_SCORE = 10
#: The same of a kernel that leaves out scores of later tokens and keeps the others in the cache.
_OF_FUSED_SCORE = 1
_PRODUCTS = ("MatMul", "Gemm", "Constant", "Gather")


def element_steps(nodes: Iterable[ir.Node], window: int, *, fused: bool = False) -> float:
    """Of a token in a window of so many tokens; those of nodes whose width is not known are left
    out. ``fused`` says whether PyTorch computes attention."""
    steps, of_score = 0.0, _OF_FUSED_SCORE if fused else _OF_SCORE
    for node in nodes:
        if node.op_type == "Attention":
            steps += node.attributes.get_int("num_heads", 1) * window * of_score
        elif node.op_type not in _PRODUCTS:
            each = _OF_VALUE.get(node.op_type, 1)
            steps += each * sum(width(value) or 0 for value in node.outputs)
    return steps
