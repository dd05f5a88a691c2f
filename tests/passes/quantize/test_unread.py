"""Pipelines leave the same graph without a text as with one: `optc plan` relies on it."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.calibrating.reads_text import ReadsText
from optc.passes.kv_cache.balance_keys import BalanceKeys
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.quantize.budget.allocate_bits import AllocateBits
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_static import QuantizeStatic
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.smooth.smooth import Smooth
from tests.passes.quantize.budget.conftest import folder, model

__all__ = ["folder", "model"]
INT4 = QuantizeWeights(
    bits=4, group_size=32, symmetric=False, group_scales="int", head_bits=4, method="gptq"
)
PIPELINES: dict[str, tuple[Pass, ...]] = {
    "calibrate and gptq": (Calibrate(hessians=True), INT4),
    "propagated errors": (PropagateErrors(), INT4),
    "static ranges": (Calibrate(), KVCache(), QuantizeStatic()),
    "balanced keys": (BalanceKeys(), KVCache(), QuantizeWeights()),
    "smoothquant": (Calibrate(channels=True), Smooth(), QuantizeWeights()),
    "awq": (Calibrate(channels=True, hessians=True), Smooth(method="awq"), INT4),
}


def with_options(passes: tuple[Pass, ...], options: dict[str, object]) -> Pipeline:
    """Those passes; the options are for those that read a text."""
    known = (one.with_options(options) if isinstance(one, ReadsText) else one for one in passes)
    return Pipeline(tuple(known))


def described(model: ir.Model) -> list[tuple[object, ...]]:
    """The nodes, and names, types and shapes of the initializers."""
    values = [
        (name, str(value.const_value.dtype), tuple(value.const_value.shape.numpy()))
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    ]
    nodes = [
        (node.op_type, node.overload, *(v.name if v else None for v in node.inputs))
        for node in model.graph
    ]
    return [*nodes, *values]


@pytest.mark.parametrize("name", PIPELINES)
def test_the_graph_is_that_of_a_compile(name: str, model: ir.Model, folder: Path) -> None:
    planned = model.clone()
    options = {"text": str(folder / "text.txt"), "windows": 4, "window_tokens": 48}
    with_options(PIPELINES[name], options | {"folder": str(folder)}).run(model)
    records = with_options(PIPELINES[name], {"folder": "x"}).run(planned, dry=True)
    assert described(planned) == described(model)
    assert all(record.report.count for record in records)


def test_a_budget_is_kept_without_a_text(model: ir.Model) -> None:
    budget = AllocateBits(budget="4.6bpw", formats=("2g32", "3g32", "4g32", "8"), folder="x")
    first, second = Pipeline((budget, INT4)).run(model, dry=True)
    assert first.report.facts["kl_measured"] is None
    assert 4.2 < second.report.facts["bits_per_weight"] <= 4.6
    assert not first.report.warnings
