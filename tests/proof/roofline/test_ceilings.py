"""Ceilings as JSON, and the warning about a busy machine."""

from __future__ import annotations

import pytest

from optc.proof.roofline.ceilings import Ceiling, ceilings_json, disturbances, sample
from tests.proof.bench.fakes import FakeMeter


def test_json_has_best_and_median() -> None:
    value = ceilings_json(FakeMeter(read=40e9, int8=900e9))
    assert value == {
        "read_bytes": 4096,
        "read_gb_per_s": {"best": 40.0, "median": pytest.approx(36.0)},
        "int8_gop_per_s": {"best": 900.0, "median": pytest.approx(810.0)},
        "fp32_gop_per_s": {"best": 0.001, "median": pytest.approx(0.0009)},
    }


def test_a_median_far_below_the_best_is_a_warning() -> None:
    class Busy(FakeMeter):
        def ceilings(self) -> dict[str, Ceiling]:
            return {"read": Ceiling(40.0, 39.0), "int8": Ceiling(100.0, 50.0)}

    assert disturbances(FakeMeter()) == []
    assert disturbances(Busy()) == [
        "other programs disturbed the ceilings: the median of int8 is 0.50 of its best; "
        "repeat on an idle machine"
    ]


def test_a_sample_is_taken_however_short_the_time() -> None:
    meter = FakeMeter()
    sample(meter, 0.0)
    assert meter.samples == 1
