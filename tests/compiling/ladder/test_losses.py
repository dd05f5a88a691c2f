"""Losses: 0 where nothing is lost, more where more is lost, for every gate of quality."""

from __future__ import annotations

import math

import pytest

from optc.artifact.tasks.task import SPEED
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.ladder.losses import loss_of, losses_of

#: Gates whose values depend on the text more than on the engine.
OF_THE_TEXT = {"perplexity", "common_continuation"}
SPEEDS = {*TEXT_GENERATION.of(SPEED)}


@pytest.mark.parametrize("gate", sorted({*TEXT_GENERATION.gates} - OF_THE_TEXT - SPEEDS))
def test_a_worse_value_is_a_larger_loss(gate: str) -> None:
    better, worse = (0.9, 0.95) if TEXT_GENERATION.by_name[gate].upper else (0.95, 0.9)
    assert (loss_of(gate, better) or 0) < (loss_of(gate, worse) or 0)


def test_nothing_is_lost_at_the_best_values() -> None:
    best = {"kl_mean": 0.0, "top1_agreement": 1.0, "perplexity_ratio": 1.0, "copy_nll_added": 0.0}
    assert losses_of(best) == dict.fromkeys(best, 0.0)


def test_gates_without_a_loss_are_left_out() -> None:
    values = dict.fromkeys([*OF_THE_TEXT, *SPEEDS, "unknown"], 3.0)
    assert losses_of({**values, "kl_mean": 0.5, "kl_p99": None}) == {"kl_mean": 0.5}


def test_a_ratio_that_is_none_is_no_error() -> None:
    assert loss_of("perplexity_ratio", 0.0) == -math.inf
