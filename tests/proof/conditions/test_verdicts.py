"""Verdicts on conditions: cases, baselines, and what was not measured."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.proof.conditions.verdicts import Conditions, ConditionsError, Verdict, check, side_by_side

FIGURES = {"speed": {"1": 10.0, "8": 40.0}, "bytes": {"": 100.0}, "mbu": {"1": None, "8": 0.5}}
BASELINE = {"speed": {"1": 20.0}, "bytes": {"": 80.0}, "gone": {"": 1.0}}


def judged(*wanted: str, unwanted: tuple[str, ...] = ()) -> list[Verdict]:
    return Conditions.parse("--require", wanted, unwanted).judge(FIGURES, BASELINE)


def test_a_condition_counts_in_every_case() -> None:
    found = judged("speed>=20")
    assert [(v.case, v.value, v.bound, v.passed) for v in found] == [
        ("1", 10, 20, False),
        ("8", 40, 20, True),
    ]
    assert found[0].reason == "speed@1 10 is not >= 20"
    assert found[1].reason == ""


def test_a_condition_of_one_case() -> None:
    (found,) = judged("speed@8>=20")
    assert (found.case, found.passed) == ("8", True)


def test_a_factor_is_one_of_the_baseline() -> None:
    (found,) = judged("bytes<=1.1x")
    assert (found.value, found.baseline, found.passed) == (100, 80, False)
    assert found.bound == pytest.approx(88)
    assert found.reason == "bytes 100 B is not <= 88 B (1.1 times the baseline's)"
    assert judged("bytes<=1.25x")[0].passed


def test_what_is_unwanted_fails_where_it_holds() -> None:
    above, below = judged(unwanted=("bytes>90", "bytes>100"))
    assert (above.passed, above.reason) == (False, "bytes 100 B is > 90 B")
    assert (below.passed, below.reason) == (True, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mbu@1>0", "mbu@1 was not measured, so 'mbu@1>0' cannot be told"),
        ("speed@8>1x", "the baseline has no speed@8, so 'speed@8>1x' cannot be told"),
        ("gone>0", "gone was not measured"),
    ],
)
def test_what_was_not_measured_fails_either_way(text: str, reason: str) -> None:
    for found in (*judged(text), *judged(unwanted=(text,))):
        assert not found.passed
        assert found.reason.startswith(reason)


def test_conditions_that_cannot_be_judged_are_refused_before_anything_is_measured() -> None:
    conditions = Conditions.parse("--require", ["sped>1", "speed>1x"])
    with pytest.raises(InputError, match=r"there is no figure 'sped' in 'sped>1'.*'speed'"):
        conditions.check(["speed"])
    factor = Conditions.parse("--require", ["speed>1x"])
    with pytest.raises(InputError, match=r"--require: 'speed>1x' refers to a baseline \(--compare"):
        factor.check(["speed"], baseline=False)
    with pytest.raises(InputError, match="refers to a baseline"):
        factor.judge(FIGURES)
    factor.check(["speed"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed@2>1", "'speed' has no case '2' (one of 1, 8)"),
        ("bytes@1>1", "'bytes' has no case '1' (leave out the @)"),
    ],
)
def test_an_unknown_case_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        judged(text)
    assert message in caught.value.render()


def test_conditions_that_fail_end_the_command() -> None:
    check(judged("bytes>1"), {})
    with pytest.raises(ConditionsError) as caught:
        check(judged("bytes>1", "bytes<1", "speed@1>99"), {"figure": 1})
    assert caught.value.exit_code == 4
    assert caught.value.message == "bytes 100 B is not < 1 B; speed@1 10 is not > 99"
    assert caught.value.details == {"figure": 1}


def test_no_conditions() -> None:
    assert not Conditions()
    assert Conditions.parse("x", ["a<1"])
    assert Conditions.parse("x", (), ["a<1"])


def test_side_by_side() -> None:
    assert side_by_side(
        {"n": {"": 4.0}, "zero": {"": 0.0}}, {"n": {"": 5.0}, "new": {"1": 2.0}}
    ) == [
        {"name": "n", "case": "", "a": 4, "b": 5, "ratio": 1.25},
        {"name": "new", "case": "1", "a": None, "b": 2, "ratio": None},
        {"name": "zero", "case": "", "a": 0, "b": None, "ratio": None},
    ]
