"""Passes of the group `general`: over models of named tensors."""

from __future__ import annotations

from optc.ir.pipeline.base import Pass
from optc.passes.general.halve_weights import HalveWeights
from optc.passes.general.quantize_blocks import QuantizeBlocks
from optc.passes.general.quantize_convolutions import QuantizeConvolutions
from optc.passes.general.quantize_products import QuantizeProducts
from optc.passes.general.simplify import Simplify

PASSES: tuple[type[Pass], ...] = (
    Simplify,
    QuantizeConvolutions,
    QuantizeProducts,
    QuantizeBlocks,
    HalveWeights,
)
