"""`halve-weights`: weights as float16, products in float32."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import UnsupportedError
from optc.ir.forms.batched import BatchedTensors
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.general.halve_weights import HalveWeights
from tests.support.ir_text import f32, model_of, nodes_text
from tests.support.ragged import run


def test_the_text_and_the_numbers() -> None:
    w, b = f32(32, 16), f32(16, seed=1)
    model = model_of("g (float[N,32] x) => (float[N,16] y)", "y = Gemm (x, w, b)", {"w": w, "b": b})
    BatchedTensors.describe(model).attach(model)
    (record,) = Pipeline((HalveWeights(),)).run(model)
    assert record.report.details == {"weight": 1}
    assert record.report.facts == {"computes_in": "float32"}
    lines = nodes_text(model).splitlines()
    assert lines[0].endswith("Cast <to = 1> (w.half)")
    assert lines[1].startswith("y = Gemm (")
    assert set(model.graph.initializers) == {"w.half", "b"}
    x = f32(5, 32, seed=2)
    wanted = x.astype(np.float64) @ w.astype(np.float16).astype(np.float64) + b
    np.testing.assert_allclose(run(model, {"x": x})[0], wanted, rtol=1e-5, atol=1e-5)


def test_what_float16_does_not_hold_stays() -> None:
    w = f32(32, 16)
    w[3, 4] = 1e6
    model = model_of("g (float[N,32] x) => (float[N,16] y)", "y = MatMul (x, w)", {"w": w})
    BatchedTensors.describe(model).attach(model)
    with pytest.raises(UnsupportedError, match="w: it has values that float16 does not hold"):
        Pipeline((HalveWeights(),)).run(model)
