"""Every kernel that CUDA engines have, by its config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm

from optc.backends.tvm_cuda.kernels import adapters, attention, embedding, experts, kv, matmul, rows
from optc.errors import UnsupportedError

#: By the kernel's name in a `Program`.
FUNCTIONS: dict[str, Callable[[Any], tvm.tirx.PrimFunc]] = {
    "quantize": rows.quantize,
    "block_hadamard": rows.block_hadamard,
    "rms_norm": rows.rms_norm,
    "layer_norm": rows.layer_norm,
    "head_rms_norm": rows.head_rms_norm,
    "gated_activation": rows.gated_activation,
    "elementwise": rows.elementwise,
    "embedding": embedding.embedding,
    "quantized_embedding": embedding.quantized_embedding,
    "gather_rows": embedding.gather_rows,
    "head_concat": embedding.head_concat,
    "rotary_kv": kv.rotary_kv,
    "rotary": kv.rotary,
    "write_kv": kv.write_kv,
    "copy_kv": kv.copy_kv,
    "tree_kv": kv.tree_kv,
    "paged_attention": attention.paged_attention,
    "int_matmul": matmul.int_matmul,
    "float_matmul": matmul.float_matmul,
    "top_k_router": experts.top_k_router,
    "expert_plan": experts.expert_plan,
    "int_experts": experts.int_experts,
    "float_experts": experts.float_experts,
    "combine_experts": experts.combine_experts,
    "adapter_shrink": adapters.adapter_shrink,
    "adapter_grow": adapters.adapter_grow,
}


def device_function(kernel: str, config: Any) -> tvm.tirx.PrimFunc:
    """The function of TIR that launches ``kernel``.

    Raises:
        UnsupportedError: There is no such kernel for CUDA, or it refuses its configuration.
    """
    if kernel not in FUNCTIONS:
        raise UnsupportedError(
            f"{kernel} has no CUDA kernel", where="tvm backend", hint="compile for a CPU target"
        )
    return FUNCTIONS[kernel](config)
