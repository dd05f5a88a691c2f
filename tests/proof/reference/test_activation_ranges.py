"""Ranges found layer by layer equal those of the whole model run at once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.ir.linear import find_linear
from optc.proof.reference import blockwise as reference_module
from optc.proof.reference.activation_ranges import RangeObserver
from tests.support.dense_models import V, dense_model


@pytest.mark.parametrize("options", [{}, {"window": 4}, {"layers": 1}], ids=str)
def test_ranges_are_the_largest_magnitudes(
    options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_module, "BLOCK_ROWS", 24)
    model = dense_model(**options)
    tokens = np.random.default_rng(1).integers(0, V, (5, 12), np.int32)
    linears = [linear for node in model.graph if (linear := find_linear(node))]
    watched = {linear.x for linear in linears}
    observer = RangeObserver(watched)
    reference_module.observe(model, tokens, [observer], 1)
    ranges = observer.ranges
    assert set(ranges) == watched
    whole = model.clone()
    names = sorted(str(value.name) for value in watched)
    by_name = {str(v.name): v for node in whole.graph for v in node.outputs}
    whole.graph.outputs[:] = [by_name[name] for name in names]
    session = ort.InferenceSession(ir.to_proto(whole).SerializeToString())
    positions = np.tile(np.arange(12, dtype=np.int64), (5, 1))
    feeds = {"input_ids": tokens.astype(np.int64), "position_ids": positions}
    want = dict(zip(names, session.run(None, feeds), strict=True))
    for value, magnitude in ranges.items():
        assert magnitude == pytest.approx(float(np.abs(want[str(value.name)]).max()), rel=1e-5)
