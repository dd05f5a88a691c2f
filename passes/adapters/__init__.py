"""Passes of the group `adapters`."""

from __future__ import annotations

from optc.ir.pipeline.base import Pass
from optc.passes.adapters.add_adapters import AddAdapters

PASSES: tuple[type[Pass], ...] = (AddAdapters,)
