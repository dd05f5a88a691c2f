"""Predictions of memory: they hold what a pass must keep, and grow with what it depends on."""

from __future__ import annotations

import pytest

from optc.compiling.resolving.limits import check_passes, peak_bytes, reading_bytes
from optc.errors import InputError
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.working_bytes import observing, propagating, rounding
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_weights import QuantizeWeights
from tests.support.dense_models import FF, HEAD, D, H, dense_model

SHORT = TextShape(4, 64)


def test_hessians_are_held_for_a_block_and_then_in_the_store() -> None:
    model = dense_model(2)
    more = observing(model, SHORT, hessians=True) - observing(model, SHORT, hessians=False)
    squares = D**2 + (H * HEAD) ** 2 + D**2 + FF**2  # QKV, O, gate and up, down
    running, kept = 8 * squares + 4 * FF**2, 8 * (squares + D**2)
    assert more == running + kept


def test_hidden_states_count_until_they_lie_in_a_file() -> None:
    model = dense_model(1)
    some, twice, many = (TextShape(windows, 512) for windows in (100, 200, 4000))
    hidden = observing(model, twice, hessians=False) - observing(model, some, hessians=False)
    assert hidden == 2 * 4 * D * 100 * 512
    assert observing(model, many, hessians=False) < observing(model, some, hessians=False)


def test_corrections_take_more_where_there_is_text_enough_for_them() -> None:
    model = dense_model(1)
    few = 16 * FF - 1
    assert propagating(model, TextShape(1, few + 1), 4) > propagating(model, TextShape(1, few), 4)


def test_values_in_bfloat16_take_half() -> None:
    wide = propagating(dense_model(1), SHORT, 4) - propagating(dense_model(1), SHORT, 2)
    assert wide >= 2 * SHORT.tokens * (D + H * HEAD + D + FF)  # QKV, O, gate and up, down


def test_reading_takes_the_factors_that_are_kept_and_one_more() -> None:
    assert rounding(dense_model(1), 2) == FF**2 * (8 + 3 * 4)
    passes = [Calibrate(), QuantizeWeights(method="gptq"), QuantizeWeights()]
    assert reading_bytes(dense_model(1), passes) == rounding(dense_model(1), 2)


def test_what_is_rounded_before_takes_the_heads_factor_alone() -> None:
    gptq = QuantizeWeights(method="gptq")
    assert reading_bytes(dense_model(1), [PropagateErrors(), gptq]) == D**2 * (2 * 8 + 4)
    assert reading_bytes(dense_model(1), [gptq, PropagateErrors()]) == rounding(dense_model(1), 2)


@pytest.mark.parametrize("one", [Calibrate(hessians=True), PropagateErrors()])
def test_a_pass_beyond_the_limit_is_refused_with_the_figure(one: Calibrate) -> None:
    model = dense_model(1)
    with pytest.raises(InputError, match=f"pass {one.name} is predicted to need [0-9,]+ bytes"):
        check_passes(model, [one], one.costs(model).working)  # what is present comes on top
    check_passes(model, [one], 1 << 40)
    check_passes(model, [one], 0)


def test_a_plan_counts_the_passes_while_they_run_and_while_they_are_read() -> None:
    model = dense_model(1)
    plain = peak_bytes(model, 1000, [], gated=False)
    gptq = QuantizeWeights(method="gptq")
    assert peak_bytes(model, 1000, [gptq], gated=False) == plain + rounding(model, 2)
    large = PropagateErrors(windows=100_000)
    assert large.costs(model).working > 0
    working = max(plain, 1000 + large.costs(model).working)
    assert peak_bytes(model, 1000, [large], gated=False) == working


def test_what_an_earlier_pass_leaves_counts_while_a_later_one_runs() -> None:
    model = dense_model(1)
    hessians, later = Calibrate(hessians=True), PropagateErrors()
    left, working = hessians.costs(model).left, later.costs(model).working
    assert left > 0
    passes = [hessians, later]
    whole = peak_bytes(model, 10**9, passes, gated=False)
    alone = peak_bytes(model, 10**9, [later], gated=False)
    assert whole - alone == left
    assert working > hessians.costs(model).working
    with pytest.raises(InputError) as caught:
        check_passes(model, [hessians, later], 1)
    assert "calibrate" in caught.value.message
