"""How nodes of the ragged step are taken."""

from __future__ import annotations

import onnx_ir as ir

from optc.backend import NATIVE, Support
from optc.backends.tensorrt.dialect.operators import STANDARD
from optc.ir.functions import DOMAIN

#: Into what operators of ours are decomposed (`legalize`).
_DECOMPOSED = {
    "PagedAttention": "TensorScatter and Attention over slots",
    "RotaryPagedAttention": "RotaryEmbedding, TensorScatter and Attention over slots",
    "RotaryEmbedding": "RotaryEmbedding",
    "HeadRMSNorm": "Reshape and RMSNormalization",
    "AddRMSNorm": "Add and RMSNormalization",
    "GatedActivation": "Split, Sigmoid or Gelu, Mul",
    "QuantizeActivation": "nothing: activations stay float",
    "RMSNormQuantize": "RMSNormalization: activations stay float",
    "AddRMSNormQuantize": "Add and RMSNormalization: activations stay float",
    "GatedActivationQuantize": "a gated activation: activations stay float",
    "QuantizedMatMul": "DequantizeLinear and MatMul",
    "QuantizedGather": "DequantizeLinear and Gather",
    "BlockFp4MatMul": "TRT_FP4DynamicQuantize, DequantizeLinear and MatMul, from sm_100 on",
    "Bf16MatMul": "MatMul in bfloat16",
    "Bf16Gather": "Gather in bfloat16",
}
_ZERO_POINTS = "TensorRT takes no weights with zero points; quantize symmetrically"
#: Where operators of quantized weights have their zero points.
_ZERO_POINT_INPUT = {"QuantizedMatMul": 4, "QuantizedGather": 3}


def support_of(node: ir.Node) -> Support:
    """Native in the dialect, decomposed by legalization, or not supported and why."""
    if not node.domain:
        if node.op_type in STANDARD:
            return NATIVE
        return Support("unsupported", f"{node.op_type} is not known to be built as it is meant")
    if node.domain != DOMAIN or node.op_type not in _DECOMPOSED:
        return Support("unsupported", f"{node.op_type} has no form in TensorRT's operators")
    at = _ZERO_POINT_INPUT.get(node.op_type)
    if at is not None and len(node.inputs) > at and node.inputs[at] is not None:
        return Support("unsupported", _ZERO_POINTS)
    return Support("decomposed", _DECOMPOSED[node.op_type])
