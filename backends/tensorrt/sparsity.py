"""A check for weights that were pruned 2:4, the pattern that GPUs have kernels for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.weights import LazyWeight

#: Rows of a weight that are looked at: the builder itself reads all before it takes such a kernel.
_ROWS = 64


def pruned_weights(model: ir.Model) -> list[str]:
    """Names of the weights [K, N] whose first output channels have at most two of every four
    inputs that are not zero."""
    found = []
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if isinstance(tensor, LazyWeight) and tensor.transposed and _has_pattern(tensor):
            found.append(name)
    return found


def _has_pattern(weight: LazyWeight) -> bool:
    """Of a weight by rows [N, K]; scales, or one whose K four does not divide, have none."""
    if len(weight.rows_shape) != 2 or not weight.rows_shape[1] or weight.rows_shape[1] % 4:
        return False
    rows = np.asarray(weight.read_rows(0, min(_ROWS, weight.rows_shape[0]))).astype(np.float32)
    groups = np.count_nonzero(rows.reshape(-1, 4), axis=1)
    return bool(rows.any() and groups.max() <= 2)
