"""Passes of the group `canonicalize`: an imported graph becomes the dense form."""

from __future__ import annotations

from optc.ir.pipeline.base import Pass
from optc.passes.canonicalize.canonicalize import STEPS, Canonicalize
from optc.passes.canonicalize.encoders.pack_rows import PackRows

PASSES: tuple[type[Pass], ...] = (
    Canonicalize,
    PackRows,
    *dict.fromkeys(type(step) for step in STEPS),
)
