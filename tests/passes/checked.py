"""Passes as the pipeline runs them, one at a time."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.pipeline.base import Pass, PassContext, PassReport


def checked_run(one: Pass, model: ir.Model, *later: Pass) -> PassReport:
    """Run a pass with its checks before it and behind it, others to come."""
    one.requires(model)
    report = one.run(model, PassContext(later=tuple(later)))
    one.ensures(model)
    return report
