"""The order of a ladder: by what the objective asks of the predictions, not by names."""

from __future__ import annotations

import random

import pytest

from optc.compiling.ladder.rungs import Objective, ordered
from tests.compiling.ladder.rung_cases import rung

FAST = rung("fast", 400.0, 0.1, prefill=100.0, size=900, memory=3000)
PROMPTS = rung("prompts", 300.0, 0.1, prefill=900.0, size=800, memory=2000)
SMALL = rung("small", 200.0, 0.1, prefill=200.0, size=100, memory=2500)
LEAN = rung("lean", 100.0, 0.1, prefill=300.0, size=700, memory=1000)


@pytest.mark.parametrize(
    ("objective", "order"),
    [
        ("decode", "fast prompts small lean"),
        ("prefill", "prompts lean small fast"),
        ("size", "small lean prompts fast"),
        ("memory", "lean prompts small fast"),
    ],
)
def test_each_objective_has_its_own_order(objective: Objective, order: str) -> None:
    rungs = [FAST, PROMPTS, SMALL, LEAN]
    for seed in range(5):
        random.Random(seed).shuffle(rungs)
        assert [one.recipe for one in ordered(rungs, objective)] == order.split()


def test_of_equal_predictions_the_one_compiled_sooner_comes_first_then_the_more_exact_one() -> None:
    soon = rung("soon", 100.0, 0.01, compile_s=10)
    near = rung("near", 100.2, 0.001, compile_s=60)  # two thousandths say nothing
    loose = rung("loose", 100.0, 0.002, compile_s=60)
    silent = rung("silent", 100.0, compile_s=60)
    assert ordered([silent, loose, near, soon], "decode") == (soon, near, loose, silent)


def test_an_engine_that_nobody_estimates_comes_last_by_its_weights() -> None:
    small = rung("small", None, 0.1, memory=10)
    large = rung("large", None, 0.1, memory=20)
    slow = rung("slow", 0.01, 0.1)
    assert ordered([large, small, slow], "decode") == (slow, small, large)
    still = rung("still", 0.0, 0.1)
    assert ordered([still, slow], "decode") == (slow, still)
