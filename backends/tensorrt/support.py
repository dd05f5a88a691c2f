"""The support of nodes of the ragged step."""

from __future__ import annotations

import onnx_ir as ir

from optc.backend import NATIVE, Support
from optc.backends.tensorrt.dialect.check import no_kernels
from optc.backends.tensorrt.dialect.operators import STANDARD
from optc.ir.functions import DOMAIN, operand
from optc.system.hardware.target import Target

#: Into what operators of ours are decomposed (`legalize`).
_DECOMPOSED = {
    "PagedAttention": "TensorScatter and Attention over slots",
    "RotaryPagedAttention": "RotaryEmbedding, TensorScatter and Attention over slots",
    "RotaryEmbedding": "RotaryEmbedding",
    "HeadRMSNorm": "Reshape and RMSNormalization",
    "HeadConcat": "Reshape, Expand and Concat",
    "AddRMSNorm": "Add and RMSNormalization",
    "BlockHadamard": "Reshape and MatMul of blocks as squares",
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
_ATTENTIONS = ("PagedAttention", "RotaryPagedAttention")
_COMPUTES_IN = {"BlockFp4MatMul": ir.DataType.FLOAT4E2M1}
#: Operands of weights that nothing in TensorRT reads.
_NO_FORM = ("w_zero_point", "w_group_scale")
ZERO_POINTS = (
    "TensorRT takes no weights with zero points or integer scales of groups: quantize "
    "symmetrically and with float scales, as the recipe trt-int4 does"
)


def kv_pools(dtype: str) -> Support:
    """Slots of the type that the engine computes in, whatever is asked for but int4: who asks for
    that has no memory for them."""
    if dtype == "int4":
        return Support("unsupported", "TensorRT's slots hold no int4")
    return Support("decomposed", "slots of float16, or of bfloat16 if matmuls are")


def support_of(node: ir.Node, target: Target) -> Support:
    """Native in the dialect, decomposed by legalization, or not supported and why."""
    architectures = [f"sm_{sm}" for sm in target.sm]
    for dtype in _types(node):
        reason = no_kernels(dtype, architectures)
        if reason:
            return Support("unsupported", reason)
    kept = kv_pools(node.attributes.get_string("kv_dtype", ""))
    if kept.how == "unsupported":
        return kept
    if not node.domain:
        if node.op_type in STANDARD:
            return NATIVE
        return Support("unsupported", f"{node.op_type} is not known to be built as it is meant")
    if node.domain != DOMAIN or node.op_type not in _DECOMPOSED:
        return Support("unsupported", f"{node.op_type} has no form in TensorRT's operators")
    if node.op_type in _ATTENTIONS and operand(node, "distance_bias") is not None:
        return Support("unsupported", "slots have no biases by distance")
    if has_zero_points(node):
        return Support("unsupported", ZERO_POINTS)
    return Support("decomposed", _DECOMPOSED[node.op_type])


def has_zero_points(node: ir.Node) -> bool:
    """True if a node reads zero points of a weight, or the integer scales that go with them."""
    quantized = node.domain == DOMAIN and node.op_type in ("QuantizedMatMul", "QuantizedGather")
    return quantized and any(operand(node, name) is not None for name in _NO_FORM)


def _types(node: ir.Node) -> list[ir.DataType]:
    """Types that a node needs kernels for."""
    own = _COMPUTES_IN.get(node.op_type) if node.domain == DOMAIN else None
    found = [own, *(v.dtype for v in (*node.inputs, *node.outputs) if v is not None)]
    return [dtype for dtype in found if dtype is not None]
