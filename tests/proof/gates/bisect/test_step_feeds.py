"""Inputs of a ragged step: every window a sequence of its own, and no adapter for any row."""

from __future__ import annotations

import numpy as np
import pytest

from optc.errors import UnsupportedError
from optc.proof.gates.bisect.step_feeds import BLOCK, step_feed
from tests.support.models import Dense, dense_model
from tests.support.pipelines import pipeline_of

WINDOWS = np.arange(2 * 21, dtype=np.int32).reshape(2, 21)


def test_windows_are_sequences_from_their_first_token_on() -> None:
    model = dense_model(Dense(windows=(0, 5)))
    pipeline_of("kv-cache{tree=true},adapters{max=3,rank=4}").run(model)
    feed = step_feed(model, WINDOWS)
    assert feed("tokens").tolist() == list(range(42))
    assert feed("positions").tolist() == [*range(21), *range(21)]
    assert feed("query_starts").tolist() == [0, 21, 42]
    assert feed("kv_lengths").tolist() == [[21, 21], [21, 21]], "of both groups"
    assert feed("logit_rows").tolist() == list(range(42)), "of every token"
    parents = feed("tree_parent").tolist()
    assert parents == [-1, *range(20), -1, *range(21, 41)]


def test_two_blocks_of_a_window_are_nobody_elses() -> None:
    model = dense_model(Dense(windows=(0, 5)))
    pipeline_of("kv-cache").run(model)
    feed = step_feed(model, WINDOWS)
    assert feed("block_tables").tolist() == [[[0, 1], [2, 3]]] * 2
    slots = [*range(21), *range(2 * BLOCK, 2 * BLOCK + 21)]
    assert feed("slot_mapping").tolist() == [slots] * 2
    for pool in ("k_pool.0", "v_pool.1"):
        assert feed(pool).shape[0] == 4
        assert feed(pool).shape[2] == BLOCK
        assert not feed(pool).any()


@pytest.mark.parametrize("name", ["adapters", "logit_adapters"])
def test_no_row_has_an_adapter(name: str) -> None:
    model = dense_model(Dense())
    pipeline_of("kv-cache,adapters{max=1,rank=4}").run(model)
    feed = step_feed(model, WINDOWS)
    assert feed(name).tolist() == [-1] * 42
    assert feed("adapter_a.0").shape[0] == 1
    assert not feed("adapter_a.0").any()


def test_dense_windows_have_positions_of_their_own() -> None:
    feed = step_feed(dense_model(Dense()), WINDOWS)
    assert feed("input_ids").tolist() == WINDOWS.tolist()
    assert feed("position_ids").tolist() == [list(range(21))] * 2
    with pytest.raises(UnsupportedError, match="what to give to the input mask is not known"):
        feed("mask")
