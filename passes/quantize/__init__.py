"""Passes of the group `quantize`."""

from __future__ import annotations

from optc.pipeline.base import Pass

PASSES: tuple[type[Pass], ...] = ()
