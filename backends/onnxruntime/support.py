"""The support of the nodes of a ragged step."""

from __future__ import annotations

import onnx_ir as ir

from optc.backend import NATIVE, Support
from optc.backends.onnxruntime.legalize.attention import spelled_out
from optc.backends.onnxruntime.legalize.pages import PAGED_TYPE, is_paged
from optc.ir.experts import EXPERT_MATMULS
from optc.ir.functions import DOMAIN, is_op, operand
from optc.system.hardware.target import Target

_DECOMPOSED = {
    "PagedAttention": "GroupQueryAttention over slots",
    "RotaryPagedAttention": "GroupQueryAttention over slots, head norms before it",
    "HeadRMSNorm": "Reshape and RMSNormalization",
    "HeadConcat": "Reshape, Expand and Concat, its body",
    "BlockHadamard": "Reshape and MatMul of blocks as squares, its body",
    "GatedActivation": "Split, the activation and Mul",
    "GatedActivationQuantize": "Split, the activation and Mul, in float32",
    "QuantizeActivation": "nothing: MatMulNBits quantizes by blocks of K",
    "RMSNormQuantize": "SimplifiedLayerNormalization, in float32",
    "AddRMSNormQuantize": "SkipSimplifiedLayerNormalization, in float32",
    "Bf16MatMul": "Cast when it is loaded, and FusedMatMul in float32",
    "Bf16Gather": "Gather and Cast",
    "QuantizedGather": "GatherBlockQuantized",
    "RotaryEmbedding": "GroupQueryAttention, or the standard operator",
    "TopKRouter": "standard operators, its body",
    "ExpertMatMul": "a Loop over the chosen experts, its body",
    "Bf16ExpertMatMul": "a Loop over the chosen experts, its body",
    "QuantizedExpertMatMul": "a Loop over the chosen experts, its body, in float32",
    "CombineExperts": "Mul and ReduceSum, its body",
    "SplitHeads": "Reshape and Expand, its body",
    "MergeHeads": "Reshape, its body",
}
#: Operators whose bodies compute in float32, which engines for CUDA do not.
_FLOAT32_ONLY = frozenset({"TopKRouter", *EXPERT_MATMULS, "CombineExperts", "BlockHadamard"})
_ATTENTIONS = ("PagedAttention", "RotaryPagedAttention")
_FUSED_NORM = "it computes no fused layer norms: leave fuse-layer-norm out"
_UNSUPPORTED = {
    "AdapterMatMul": "slots have no room for LoRA adapters",
    "QuantizedAdapterMatMul": "slots have no room for LoRA adapters",
    "ResidualHeads": "slots have no room for Medusa heads",
    "PagedCrossAttention": "slots have no room for the states of an encoder",
    "PagedCausalConv": "slots have no room for the rows that convolutions read",
    "PagedLinearAttention": "slots have no room for the states of linear attention",
    "LayerNormQuantize": _FUSED_NORM,
    "AddLayerNorm": _FUSED_NORM,
    "AddLayerNormQuantize": _FUSED_NORM,
    "ActivationQuantize": _FUSED_NORM,
}


def kv_pools(dtype: str, target: Target) -> Support:
    """The support of the keys and values of a KV type."""
    if dtype == "int4":
        return Support("unsupported", "ONNX Runtime's slots and pages hold no int4")
    if target.kind == "cuda":
        return NATIVE if dtype == PAGED_TYPE else Support("decomposed", "slots of float16")
    return Support("decomposed", "slots of float32")


def support_of(node: ir.Node, target: Target) -> Support:
    """The support of a node; standard operators are ONNX Runtime's own."""
    kept = kv_pools(node.attributes.get_string("kv_dtype", ""), target)
    if kept.how == "unsupported":
        return kept
    attention = is_op(node, *_ATTENTIONS, domain=DOMAIN)
    if attention and operand(node, "distance_bias") is not None:
        return Support("unsupported", "slots have no biases by distance")
    if attention and (reason := spelled_out(node)):
        if target.kind == "cuda":
            return Support("unsupported", f"no attention for CUDA takes this one: {reason}")
        return Support("decomposed", "TensorScatter, MatMul and Softmax over slots")
    if target.kind == "cuda" and is_paged(node):
        return Support("decomposed", "PagedAttention over pages of float16")
    if node.domain != DOMAIN:
        return NATIVE
    if node.op_type in _UNSUPPORTED:
        return Support("unsupported", _UNSUPPORTED[node.op_type])
    if target.kind == "cuda" and node.op_type in _FLOAT32_ONLY:
        reason = f"{node.op_type} has no form in float16"
        return Support("unsupported", reason)
    if node.op_type in _DECOMPOSED:
        return Support("decomposed", _DECOMPOSED[node.op_type])
    return NATIVE
