"""Values beyond float16 are named by layer before an engine computes in it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.compiling.judging.float16_ranges import check_float16
from optc.errors import UnsupportedError
from optc.ir.weights import LazyWeight
from tests.proof.reference.test_blockwise import whole_logits
from tests.support.models import Dense, dense_model

IDS = np.random.default_rng(0).integers(0, 61, (2, 16)).astype(np.int32)


def enlarged(name: str, factor: float) -> ir.Model:
    model = dense_model(Dense(windows=(0, 0, 0)))
    value = model.graph.initializers[name]
    weight = value.const_value
    assert isinstance(weight, LazyWeight)
    value.const_value = weight.map_rows(lambda rows: factor * rows, ir.DataType.FLOAT)
    return model


def test_values_within_float16_are_fine() -> None:
    check_float16(enlarged("1.down.weight", 1.0), IDS, ["e"], 1)


def test_a_layer_that_exceeds_it_is_named_by_its_weight() -> None:
    model = enlarged("1.down.weight", 3e5)
    with pytest.raises(UnsupportedError) as caught:
        check_float16(model, IDS, ["e", "f"], 1)
    text = caught.value.render()
    assert text.startswith(
        "engine e, f: values of the model exceed float16, whose largest is 65504"
    )
    assert "the result of 1.down.weight (layer 1) reaches " in text
    assert "the result of add" in text, "the residual carries it on"
    assert "(layer 2)" in text or " more (" in text
    assert "use a recipe that computes in bfloat16 (bf16-fused)" in text
    assert np.isfinite(whole_logits(model, IDS)).all(), "float32 holds them all"


def test_an_embedding_that_exceeds_it() -> None:
    with pytest.raises(UnsupportedError, match=r"the result of gather \(the embedding\) reaches"):
        check_float16(enlarged("embed.weight", 1e7), IDS, ["e"], 1)
