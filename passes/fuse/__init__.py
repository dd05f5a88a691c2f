"""Passes of the group `fuse`."""

from __future__ import annotations

from optc.ir.pipeline.base import Pass
from optc.passes.fuse.gate_up import FuseGateUp
from optc.passes.fuse.layer_norm import FuseLayerNorm
from optc.passes.fuse.norm_quantize import FuseNormQuantize
from optc.passes.fuse.qkv import FuseQKV
from optc.passes.fuse.residual_norm import FuseResidualNorm
from optc.passes.fuse.rotary import FuseRotary

PASSES: tuple[type[Pass], ...] = (
    FuseQKV,
    FuseGateUp,
    FuseResidualNorm,
    FuseRotary,
    FuseNormQuantize,
    FuseLayerNorm,
)
