"""The grammar of conditions."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.proof.conditions.condition import Condition, check_metric, figure_text, parse_condition


@pytest.mark.parametrize(
    ("text", "metric", "case", "relation", "number", "of_baseline"),
    [
        ("kl_mean<=0.02", "kl_mean", "", "<=", 0.02, False),
        ("kl_mean>1.1x", "kl_mean", "", ">", 1.1, True),
        (" decode_tokens_per_s @ 8 >= 0.95 x ", "decode_tokens_per_s", "8", ">=", 0.95, True),
        ("ttft_ms.p90@16<200", "ttft_ms.p90", "16", "<", 200, False),
        ("goodput.share>=99%", "goodput.share", "", ">=", 0.99, False),
        ("bytes<=1.5GiB", "bytes", "", "<=", 1.5 * 2**30, False),
        ("bytes<20 MB", "bytes", "", "<", 20e6, False),
        ("weights_changed==0", "weights_changed", "", "==", 0, False),
        ("weights_changed != 0", "weights_changed", "", "!=", 0, False),
        ("kl_mean@tvm-cuda-sm_80+sm_89≤1e-3", "kl_mean", "tvm-cuda-sm_80+sm_89", "<=", 1e-3, False),
        ("a≥-.5", "a", "", ">=", -0.5, False),
    ],
)
def test_what_a_condition_says(
    text: str, metric: str, case: str, relation: str, number: float, of_baseline: bool
) -> None:
    found = parse_condition(text, "--require")
    assert found == Condition(text.strip(), metric, case, relation, number, of_baseline)


@pytest.mark.parametrize(
    ("relation", "below", "equal", "above"),
    [
        ("<", True, False, False),
        ("<=", True, True, False),
        ("==", False, True, False),
        ("!=", True, False, True),
        (">=", False, True, True),
        (">", False, False, True),
    ],
)
def test_relations(relation: str, below: bool, equal: bool, above: bool) -> None:
    condition = parse_condition(f"a{relation}2", "x")
    assert [condition.holds(value, 2) for value in (1, 2, 3)] == [below, equal, above]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no condition"),
        ("kl_mean", "'kl_mean' is no condition"),
        ("kl_mean=0.02", "is no condition"),
        ("<=0.02", "is no condition"),
        ("kl mean<1", "is no condition"),
        ("kl_mean<", "is no condition"),
        ("kl_mean@<1", "is no condition"),
        ("kl_mean<=little", "'little' in 'kl_mean<=little' is no bound"),
        ("kl_mean<=nan", "'nan' in 'kl_mean<=nan' is no bound"),
        ("kl_mean<=1.1y", "is no bound"),
        ("kl_mean<=1<2", "is no bound"),
        ("kl_mean<=1e999", "is too large"),
    ],
)
def test_what_is_no_condition(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition(text, "--require")
    assert caught.value.render().startswith("--require: ")
    assert message in caught.value.message


def test_an_unknown_metric_is_answered_with_the_nearest() -> None:
    condition = parse_condition("kl_men<1", "--require")
    with pytest.raises(InputError, match=r"there is no figure 'kl_men'.*did you mean 'kl_mean'"):
        check_metric(condition, ["bytes", "kl_mean"], "--require")
    check_metric(condition, ["kl_men"], "--require")


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("bytes", 16_440_000, "15.7 MiB (16440000 B)"),
        ("peak_anon_bytes", 1023, "1023 B"),
        ("kv_bytes_per_token", 2048.0, "2.0 KiB (2048 B)"),
        ("kl_mean", 0.0123456789, "0.0123457"),
        ("bytesize", 1.5, "1.5"),
        ("bytes", None, "-"),
    ],
)
def test_figures_for_reading(metric: str, value: float | None, text: str) -> None:
    assert figure_text(metric, value) == text
