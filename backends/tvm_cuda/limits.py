"""The features of CPU engines that CUDA engines do not support."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.functions import operand
from optc.ir.quantizers import activation_bits, is_quantizer

#: What GPUs multiply.
PEAKS = ("int8", "bf16", "fp32")
#: KV types that only CPUs have kernels for.
_CPU_POOLS = ("int4", "float16")
_CPU_SCORINGS = ("sparse_mixer", "sigmoid_after")
_ATTENTIONS = ("PagedAttention", "RotaryPagedAttention")
_LAYER_NORMS = ("LayerNormQuantize", "AddLayerNorm", "AddLayerNormQuantize", "ActivationQuantize")


def pool_refusal(dtype: str) -> str:
    """Empty if CUDA kernels read pools of a KV type that those of CPUs read, else the reason."""
    return f"no CUDA kernel reads KV pools of {dtype}" if dtype in _CPU_POOLS else ""


def refusal(node: ir.Node) -> str:
    """Empty if a node that the CPU's lowering takes has CUDA kernels, too, else the reason."""
    if node.op_type == "ResidualHeads":
        return "Medusa heads have no CUDA kernels"
    if is_quantizer(node) and activation_bits(node.outputs[-2]) != 8:
        return "activations of 16 bits have no CUDA kernels: quantize-weights.activation_bits=8"
    weighted = node.op_type.startswith("Quantized") and node.op_type != "QuantizedAdapterMatMul"
    zeros = operand(node, "w_zero_point") if weighted else None
    if zeros is not None and zeros.dtype == ir.DataType.FLOAT:
        return "float zero points have no CUDA kernels: quantize-weights.given=symmetric"
    if node.op_type == "PagedCrossAttention":
        return "attention to an encoder has no CUDA kernels"
    if node.op_type == "PagedCausalConv":
        return "convolutions along the tokens have no CUDA kernels"
    if node.op_type == "PagedLinearAttention":
        return "recurrences have no CUDA kernels"
    if node.op_type in _ATTENTIONS and operand(node, "distance_bias") is not None:
        return "attention with biases by distance has no CUDA kernels"
    if (scoring := node.attributes.get_string("scoring", "")) in _CPU_SCORINGS:
        return f"routers that score by {scoring} have no CUDA kernels"
    if node.op_type in _LAYER_NORMS:
        return "fused layer norms have no CUDA kernels: leave fuse-layer-norm out"
    return pool_refusal(node.attributes.get_string("kv_dtype", ""))
