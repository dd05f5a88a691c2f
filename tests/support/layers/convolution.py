"""Short convolutions of tiny decoders, gated before and behind (LFM2's)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from optc.ir.weights import as_lazy

if TYPE_CHECKING:
    from tests.support.models import DenseBuilder


def short_convolution(b: DenseBuilder, x: ir.Value, index: int, kernel: int) -> ir.Value:
    """Each channel of B * x along the tokens, times C; of B, C and x one projection."""
    width = b.shape.hidden
    whole = b.linear(x, f"{index}.conv_in", width, 3 * width)
    sizes = b.constant(ir.tensor([width] * 3, ir.DataType.INT64), b.name("conv_sizes"))
    before, behind, rows = b.op("Split", [whole, sizes], width, outputs=3, axis=-1)
    rows = b.op("Mul", [before, rows], width)
    filters = b.random.standard_normal((width, kernel)).astype(np.float32)
    name = f"{index}.conv.weight"
    weight = b.constant(as_lazy(ir.tensor(filters, name=name)), name)
    rows = b.ours("CausalConv", [rows, weight], width, channels=width, kernel=kernel)
    gated = b.op("Mul", [behind, rows], width)
    result: ir.Value = b.linear(gated, f"{index}.mixer_out", width, width)
    return result
