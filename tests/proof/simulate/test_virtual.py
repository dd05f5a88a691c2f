"""An engine in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from optc.proof.bench.batches import ragged_batch
from optc.proof.simulate.step_times import Spread
from optc.proof.simulate.virtual import VirtualClock, VirtualEngine, VirtualProposer
from tests.proof.simulate.fakes import step_times
from tests.runtime.support.toy import toy_spec

SPEC = toy_spec(max_rows=64, max_sequences=64, max_logit_rows=64)
TIMES = step_times(step=1.0, row=0.25, logits=0.5)
BATCH = ragged_batch(SPEC, [(1, 9), (4, 4)], 4)


def test_a_step_moves_the_clock_by_what_it_costs() -> None:
    clock = VirtualClock()
    engine = VirtualEngine(SPEC, TIMES, clock)
    logits = engine.step(BATCH)
    assert logits.shape == (2, 2)
    assert clock() == 1.0 + 5 * 0.25 + 2 * 0.5
    engine.step(BATCH)
    assert clock() == 2 * 3.25
    assert engine.spec.vocab_size == 2
    assert engine.spec.max_context == SPEC.max_context


def test_drafts_are_accepted_with_the_stated_probability() -> None:
    rows = ragged_batch(SPEC, [(1, 2)] * 64, 4)

    def share(acceptance: float, seed: int = 0) -> float:
        engine = VirtualEngine(SPEC, TIMES, VirtualClock(), acceptance=acceptance, seed=seed)
        picked = [engine.step(rows).argmax(axis=1) for _ in range(50)]
        return float(np.mean(picked))  # token 1 is the draft

    assert [share(0.0), share(1.0)] == [0.0, 1.0]
    assert abs(share(0.7) - 0.7) < 0.03
    assert share(0.7) == share(0.7) != share(0.7, seed=1)


def test_delays_do_not_change_what_is_accepted() -> None:
    uneven = replace(TIMES, spread=(Spread(9.0, (0.25, 0.25, 3.0)),))
    clocks = [VirtualClock(), VirtualClock()]
    engines = [
        VirtualEngine(SPEC, times, clock, acceptance=0.5)
        for times, clock in zip((TIMES, uneven), clocks, strict=True)
    ]
    for _ in range(20):
        first, second = (engine.step(BATCH) for engine in engines)
        assert (first == second).all()
    assert clocks[0].now != clocks[1].now


def test_blocks_hold_nothing() -> None:
    engine = VirtualEngine(SPEC, TIMES, VirtualClock())
    blocks = np.arange(3, dtype=np.int32)
    assert engine.read_blocks(0, blocks).shape == (3, 0)


def test_as_many_drafts_as_are_wanted() -> None:
    drafts = VirtualProposer().propose(cast(Any, [(None, 2), (None, 0)]))
    assert [list(d.tokens) for d in drafts] == [[1, 1], []]
