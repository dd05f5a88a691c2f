"""Magnitudes of channels found layer by layer equal those of the whole model run at once."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.ir.linear import find_linear
from optc.proof.reference import blockwise as reference_module
from optc.proof.reference.channel_magnitudes import ChannelObserver
from tests.support.dense_models import V, dense_model


@pytest.mark.parametrize("options", [{}, {"layers": 1}], ids=str)
def test_means_and_largest_magnitudes(
    options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_module, "BLOCK_ROWS", 24)  # several chunks
    model = dense_model(**options)
    tokens = np.random.default_rng(1).integers(0, V, (5, 12), np.int32)
    # results of blocks are the next block's sources, too: each counts once
    residuals = {node.outputs[0] for node in model.graph if node.op_type == "Add"}
    watched = {linear.x for node in model.graph if (linear := find_linear(node))} | residuals
    observer = ChannelObserver(watched)
    reference_module.observe(model, tokens, [observer], 1)
    assert set(observer.found) == watched
    whole = model.clone()
    names = sorted(str(value.name) for value in watched)
    by_name = {str(v.name): v for node in whole.graph for v in node.outputs}
    whole.graph.outputs[:] = [by_name[name] for name in names]
    session = ort.InferenceSession(ir.to_proto(whole).SerializeToString())
    positions = np.tile(np.arange(12, dtype=np.int64), (5, 1))
    feeds = {"input_ids": tokens.astype(np.int64), "position_ids": positions}
    want = dict(zip(names, session.run(None, feeds), strict=True))
    for value, found in observer.found.items():
        rows = np.abs(want[str(value.name)]).reshape(60, -1)
        assert found.tokens == 60
        np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found.largest, rows.max(axis=0), rtol=1e-4, atol=1e-6)
