"""What is said of a ladder."""

from __future__ import annotations

import pytest

from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.ladder.record import NoRungHeldError, looser
from optc.compiling.ladder.search import Search, Trial
from tests.compiling.ladder.rung_cases import rung


@pytest.mark.parametrize("gate", TEXT_GENERATION.gates)
@pytest.mark.parametrize("value", [3.14159, 0.0445123, 2.1e-7, 0.998877, 12345.0, 0.5, 1.0])
def test_a_looser_bound_is_short_and_holds_the_value(gate: str, value: float) -> None:
    bound = float(looser(gate, value))
    assert bound >= value if TEXT_GENERATION.by_name[gate].upper else bound <= value
    assert abs(bound - value) <= 0.1 * value


def test_nothing_lost_needs_no_looser_bound() -> None:
    assert looser("kl_mean", 0.0) == "0"


def test_where_nothing_was_measured_the_error_points_at_the_ladder() -> None:
    search = Search((rung("a", promised=0.1),), {"kl_mean": 0.1})
    search.trials["a"] = Trial(False, why="it does not fit")
    error = NoRungHeldError({"rungs": []}, search, 1.0)
    assert error.message.endswith("none could be measured")
    assert error.hint == "no artifact was written; the ladder says why each fell"
    assert error.details["nearest"] == ""
