"""An engine that is farther from the source than the passes' model is wrong in its build."""

from __future__ import annotations

from typing import Any

import pytest

from optc.compiling.judging.bisecting import with_engines
from optc.proof.gates.measure import GateResult


def bisection(last: float | None) -> dict[str, Any]:
    passes = [{"name": "canonicalize", "kl": 0.0}, {"name": "round", "kl": last}]
    found = {"tokens": 9, "passes": passes, "sqnr_by_layer": [30.0], "pass": "round"}
    return {**found, "kl_before": 0.0, "kl_after": last, "node": "n", "suspects": [{}]}


def kl(value: float, engine: str = "a") -> GateResult:
    return GateResult("kl_mean", value, None, None, "engine", engine=engine)


@pytest.mark.parametrize("value", [0.0, 0.02, 0.06])
def test_an_engine_about_as_far_as_the_passes_leaves_them_to_blame(value: float) -> None:
    engines = [{"name": "a", "measured_on": "engine", "kl": value}]
    assert with_engines(bisection(0.02), [kl(value)]) == {**bisection(0.02), "engines": engines}


@pytest.mark.parametrize(("value", "shown"), [(0.07, 0.07), (float("nan"), None)])
def test_one_that_is_farther_is_wrong_in_its_build(value: float, shown: float | None) -> None:
    found = with_engines(bisection(0.02), [kl(0.02), kl(value, "b")])
    assert (found["pass"], found["kl_before"], found["kl_after"]) == ("build", 0.02, shown)
    assert (found["node"], found["suspects"]) == (None, [])
    assert found["passes"] == bisection(0.02)["passes"]
    assert [engine["kl"] for engine in found["engines"]] == [0.02, shown]


def test_rounding_of_float32_is_no_error_of_a_build() -> None:
    assert with_engines(bisection(1e-12), [kl(9e-7)])["pass"] == "round"
    assert with_engines(bisection(1e-12), [kl(2e-6)])["pass"] == "build"


def test_passes_that_give_no_numbers_are_to_blame_themselves() -> None:
    assert with_engines(bisection(None), [kl(float("nan"))])["pass"] == "round"
    assert with_engines(bisection(0.02), [])["engines"] == []
