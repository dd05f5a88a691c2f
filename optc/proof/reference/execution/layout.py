"""The layout in which parts of a model hold its constants."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.graph import constant
from optc.ir.linear import find_linear
from optc.ir.weights import LazyWeight


def by_rows(value: ir.Value) -> bool:
    """True if a constant is held by rows [N, K], where the graph sees [K, N]: the weight of a
    linear layer, and what else a transposed `LazyWeight` holds."""
    tensor = constant(value)
    if tensor is None:
        return False
    if isinstance(tensor, LazyWeight) and tensor.transposed:
        return True
    linears = (find_linear(node) for node in value.consumers())
    return any(one is not None and one.initializer is value for one in linears)
