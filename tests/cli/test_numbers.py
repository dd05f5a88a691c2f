"""Digits of the numbers that ``--json`` prints."""

from __future__ import annotations

import math

from optc.cli.numbers import rounded


def test_times_and_rates_have_six_digits() -> None:
    value = {"ttft_ms": 60.70199999999204, "all": [{"share": 1 / 3}, (1e-9 / 3,)], "n": 123456789}
    assert rounded(value) == {
        "ttft_ms": 60.702,
        "all": [{"share": 0.333333}, [3.33333e-10]],
        "n": 123456789,
    }


def test_counts_keep_every_digit() -> None:
    assert rounded([123456789.0, 123456789]) == [123456789.0, 123456789]


def test_what_proves_something_is_exact() -> None:
    third = 1 / 3
    value = {"gates": [{"value": third, "bound": third}], "manifest": {"eps": third}, "x": third}
    assert rounded(value) == {**value, "x": 0.333333}
    assert rounded({"report": {"seconds": third}}) == {"report": {"seconds": third}}
    assert rounded({"kl_mean": third, "perplexity": math.pi}) == {
        "kl_mean": third,
        "perplexity": math.pi,
    }


def test_other_values_stay() -> None:
    value = {"text": "1.23456789", "ok": True, "none": None}
    assert rounded(value) == value
    assert math.isnan(rounded(float("nan")))  # for json.dumps to refuse
