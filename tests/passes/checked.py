"""Passes as the pipeline runs them, one at a time."""

from __future__ import annotations

import onnx_ir as ir

from optc.pipeline.base import Pass, PassReport


def checked_run(one: Pass, model: ir.Model) -> PassReport:
    """Run a pass with its checks before it and behind it."""
    one.requires(model)
    report = one.run(model)
    one.ensures(model)
    return report
