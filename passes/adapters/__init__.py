"""Passes of the group `adapters`."""

from __future__ import annotations

from optc.passes.adapters.add_adapters import AddAdapters
from optc.pipeline.base import Pass

PASSES: tuple[type[Pass], ...] = (AddAdapters,)
