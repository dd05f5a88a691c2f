"""Seconds of a compile follow from what its passes and its gates compute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optc.driver.predictions.compile_time import compile_seconds, usual_layer
from optc.driver.predictions.paces import Paces
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.passes.quantize.predictions.work import observing
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.pipeline.base import Pass
from tests.support.dense_models import FF, D, dense_model

SLOW = Paces(float32=1e9, bfloat16=2e9, int8=4e9, float64=5e8, steps=1e5, alone=1e5)
GPTQ = QuantizeWeights(bits=4, group_size=32, symmetric=False, method="gptq")


def seconds(*passes: Pass, kernel_s: float = 10, calibrated: bool = True) -> dict[str, float]:
    return compile_seconds(dense_model(2), passes, SLOW, kernel_s=kernel_s, calibrated=calibrated)


def test_a_calibration_takes_what_its_work_takes() -> None:
    one = Calibrate(windows=32, hessians=True)
    plain, more = seconds(), seconds(one)
    work = observing(dense_model(2), TextShape(32, 512), hessians=True)
    assert more["passes"] - plain["passes"] == pytest.approx(SLOW.seconds(work))
    assert {**more, "passes": 0} == {**plain, "passes": 0}


def test_the_longer_of_compiling_and_packing_is_the_build() -> None:
    assert seconds(GPTQ, kernel_s=1)["build"] > seconds(kernel_s=1)["build"]
    assert seconds(GPTQ, kernel_s=99)["build"] == seconds(kernel_s=99)["build"]


def test_what_is_rounded_by_a_pass_is_not_rounded_while_it_is_packed() -> None:
    propagated = seconds(PropagateErrors(), GPTQ, kernel_s=1)
    assert propagated["build"] < seconds(GPTQ, kernel_s=1)["build"]
    assert propagated["passes"] > seconds(GPTQ)["passes"]


def test_no_text_is_judged_without_a_calibration() -> None:
    assert "calibration text" in seconds()
    assert "calibration text" not in seconds(calibrated=False)


def test_a_text_takes_more_than_its_products() -> None:
    fast = replace(SLOW, steps=1e12)
    found = [
        compile_seconds(dense_model(2), (), paces, kernel_s=1, calibrated=True)
        for paces in (SLOW, fast)
    ]
    for stage in ("calibration text", "gates"):
        assert found[0][stage] > found[1][stage] > 0


def test_the_usual_layer_is_the_one_with_most_of_the_weights() -> None:
    assert usual_layer(dense_model(2)) == (FF, D)  # gate and up
