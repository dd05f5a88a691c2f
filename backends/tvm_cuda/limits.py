"""What CUDA engines cannot take that CPU engines can."""

from __future__ import annotations

import onnx_ir as ir

#: What GPUs multiply.
PEAKS = ("int8", "bf16", "fp32")
_ADAPTERS = ("AdapterMatMul", "QuantizedAdapterMatMul")


def refusal(node: ir.Node) -> str:
    """Empty if a node that the CPU's lowering takes has CUDA kernels, too, else the reason."""
    if node.op_type in _ADAPTERS:
        return "LoRA adapters have no CUDA kernels"
    if node.op_type == "ResidualHeads":
        return "Medusa heads have no CUDA kernels"
    if "tree_parent" in {value.name for value in node.inputs if value is not None}:
        return "trees of drafts have no CUDA kernels: compile with --set kv-cache.tree=false"
    return ""
