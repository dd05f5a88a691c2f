"""What a calibration knows of inputs stays true when these are scaled."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import InputError
from optc.ir.linear import find_linear
from optc.ir.pipeline.base import PassReport
from optc.passes.numerics.statistics import CHANNEL_MEAN, CHANNEL_RANGE, INPUT_HESSIAN, INPUT_RANGE
from optc.passes.quantize.folding.fold import fold, rescale
from optc.passes.quantize.folding.places import find_places
from optc.proof.reference import blockwise
from optc.proof.reference.calibration import CalibrationStore
from optc.proof.reference.channel_magnitudes import ChannelObserver
from optc.proof.reference.input_hessians import HessianObserver
from tests.support.dense_models import V, dense_model
from tests.support.ir_text import f32, model_of


def observed() -> tuple[CalibrationStore, CalibrationStore, set[str]]:
    """Statistics of a model scaled with it, those of the scaled model, and the weights."""
    tokens = np.random.default_rng(1).integers(0, V, (4, 24), np.int32)
    stores = []
    for scaled_first in (False, True):
        model, store = dense_model(2), CalibrationStore()
        rng = np.random.default_rng(0)
        places = find_places(model, PassReport())
        drawn = [np.exp(rng.standard_normal(int(one.channels.max()) + 1)) for one in places]
        if scaled_first:
            for place, scale in zip(places, drawn, strict=True):
                fold(place, scale, CalibrationStore())
        readers = {place.x: [linear.name for linear in place.linears] for place in places}
        channels = ChannelObserver(readers)
        hessians = HessianObserver(
            readers, lambda value, h, s=store, r=readers: s.put(r[value], INPUT_HESSIAN, h)
        )
        blockwise.observe(model, tokens, [channels, hessians], 1)
        for value, seen in channels.found.items():
            store.put(readers[value], CHANNEL_MEAN, seen.mean)
            store.put(readers[value], CHANNEL_RANGE, seen.largest)
            store.put(readers[value], INPUT_RANGE, np.array(seen.largest.max()))
        if not scaled_first:
            for place, scale in zip(places, drawn, strict=True):
                fold(place, scale, store)
        stores.append(store)
    return *stores, {name for names in readers.values() for name in names}  # type: ignore[return-value]


def test_scaled_statistics_are_those_of_the_scaled_model() -> None:
    mine, theirs, weights = observed()
    assert len(weights) > 10
    for weight in weights:
        for name in (CHANNEL_MEAN, CHANNEL_RANGE, INPUT_HESSIAN, INPUT_RANGE):
            found, want = mine.find(weight, name), theirs.find(weight, name)
            assert found is not None
            assert want is not None
            np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-5, err_msg=name)


def test_a_statistic_that_nobody_can_scale_is_refused() -> None:
    model = model_of(
        "g (float[1,S,8] x) => (float[1,S,6] y)", "y = MatMul (x, w)", {"w": f32(8, 6)}
    )
    linear, store = find_linear(model.graph[0]), CalibrationStore()
    assert linear is not None
    store.put(["w"], "histogram", np.ones(3))
    with pytest.raises(InputError) as caught:
        rescale([linear], np.ones(8), store)
    assert str(caught.value) == (
        "pass smooth: the statistic histogram of w does not survive another scale "
        "(put the pass that takes it behind smooth)"
    )
