"""The features of CPU engines that CUDA engines do not support."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op, operand
from optc.ir.functions.token_wise import is_clamped_gate
from optc.ir.quantizers import activation_bits, is_quantizer

#: What GPUs multiply.
PEAKS = ("int8", "bf16", "fp32")
#: KV types that only CPUs have kernels for.
_CPU_POOLS = ("int4",)
_ADAPTERS = ("AdapterMatMul", "QuantizedAdapterMatMul")
_EXPERTS = (
    "TopKRouter",
    "ExpertMatMul",
    "Bf16ExpertMatMul",
    "QuantizedExpertMatMul",
    "CombineExperts",
)
_ATTENTIONS = ("PagedAttention", "RotaryPagedAttention")


def pool_refusal(dtype: str) -> str:
    """Empty if CUDA kernels read pools of a KV type that those of CPUs read, else the reason."""
    return f"no CUDA kernel reads KV pools of {dtype}" if dtype in _CPU_POOLS else ""


def refusal(node: ir.Node) -> str:
    """Empty if a node that the CPU's lowering takes has CUDA kernels, too, else the reason."""
    if node.op_type in _ADAPTERS:
        return "LoRA adapters have no CUDA kernels"
    if node.op_type == "ResidualHeads":
        return "Medusa heads have no CUDA kernels"
    if node.op_type in _EXPERTS:
        return "mixtures of experts have no CUDA kernels"
    if is_quantizer(node) and activation_bits(node.outputs[-2]) != 8:
        return "activations of 16 bits have no CUDA kernels: quantize-weights.activation_bits=8"
    zeros = operand(node, "w_zero_point") if node.op_type.startswith("Quantized") else None
    if zeros is not None and zeros.dtype == ir.DataType.FLOAT:
        return "float zero points have no CUDA kernels: quantize-weights.given=symmetric"
    if is_clamped_gate(node):
        return "clamped gates have no CUDA kernels"
    if "tree_parent" in {value.name for value in node.inputs if value is not None}:
        return "trees of drafts have no CUDA kernels: compile with --set kv-cache.tree=false"
    if is_op(node, *_ATTENTIONS, domain=DOMAIN) and (reason := _attention_refusal(node)):
        return reason
    return pool_refusal(node.attributes.get_string("kv_dtype", ""))


def _attention_refusal(node: ir.Node) -> str:
    if operand(node, "sinks") is not None:
        return "attention sinks have no CUDA kernels"
    if operand(node, "alibi_slopes") is not None:
        return "ALiBi has no CUDA kernels"
    if node.attributes.get_int("chunk", 0):
        return "attention within chunks has no CUDA kernels"
    return ""
