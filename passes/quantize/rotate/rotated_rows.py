"""Weights by rows whose input channels are rotated as they are read."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.weights import Array, LazyWeight
from optc.runtime.executable.block_hadamard import block_hadamard


def rotated_rows(weight: LazyWeight, block: int) -> LazyWeight:
    """W T of rows W [N, K], in float32: each row by itself, so that its bits do not depend on which
    rows are read with it."""

    def rotated(rows: Array) -> Array:
        return block_hadamard(np.asarray(rows, np.float32), block)

    return weight.map_rows(rotated, ir.DataType.FLOAT)
