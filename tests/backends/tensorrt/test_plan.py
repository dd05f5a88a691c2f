"""Plans of calls over slots: every row exactly once, nothing where a sequence could read it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.backends.tensorrt.limits import Limits, slot_length
from optc.backends.tensorrt.runtime.plan import DECODE, PREFILL, VERIFY, Call, plan_calls
from optc.runtime.executable.executable import StepBatch

CONTEXT = 40
LENGTH = slot_length(CONTEXT)
LIMITS = (Limits("decode", 4, 1, 1), Limits("verify", 4, 8, 8), Limits("prefill", 1, 16, 3))


def step(rows: dict[int, tuple[int, int, list[int]]]) -> StepBatch:
    """A step: for each slot, tokens already there, new rows, and those of them that are wanted."""
    starts = np.cumsum([0, *(count for _, count, _ in rows.values())]).astype(np.int32)
    total = int(starts[-1])
    wanted = [
        int(start) + row
        for start, (_, _, which) in zip(starts[:-1], rows.values(), strict=True)
        for row in which
    ]
    written = [known for known, _, _ in rows.values()]
    counts = [count for _, count, _ in rows.values()]
    return StepBatch(
        tokens=np.arange(100, 100 + total, dtype=np.int32),
        positions=np.concatenate(
            [np.arange(w, w + n, dtype=np.int32) for w, n in zip(written, counts, strict=True)]
        ),
        slot_mapping=np.zeros((1, total), np.int32),
        query_starts=starts,
        kv_lengths=np.array([[w + n for w, n in zip(written, counts, strict=True)]], np.int32),
        block_tables=np.array([[[slot] for slot in rows]], np.int32),
        logit_rows=np.array(wanted, np.int32),
    )


def _shapes(calls: list[Call]) -> list[tuple[int, int, tuple[int, int, int]]]:
    return [(call.profile, call.base, call.shape) for call in calls]


def test_decoding_neighbours_share_a_call() -> None:
    batch = step({2: (5, 1, [0]), 0: (9, 1, [0]), 1: (3, 1, [])})
    calls = plan_calls(batch, LIMITS, LENGTH)
    assert _shapes(calls) == [(DECODE, 0, (3, 1, 1))]
    np.testing.assert_array_equal(calls[0].write_indices, [9, 3, 5])
    np.testing.assert_array_equal(calls[0].tokens, [[101], [102], [100]])
    assert calls[0].results == ((0, 0, 1), (2, 0, 0))


def test_idle_slots_in_between_write_behind_all_tokens() -> None:
    calls = plan_calls(step({0: (5, 1, [0]), 3: (9, 1, [0])}), LIMITS, LENGTH)
    assert _shapes(calls) == [(DECODE, 0, (4, 1, 1))]
    np.testing.assert_array_equal(calls[0].write_indices, [5, LENGTH - 1, LENGTH - 1, 9])


def test_slots_far_apart_and_large_batches_make_calls_of_their_own() -> None:
    calls = plan_calls(step({0: (5, 1, [0]), 20: (9, 1, [0])}), LIMITS, LENGTH)
    assert _shapes(calls) == [(DECODE, 0, (1, 1, 1)), (DECODE, 20, (1, 1, 1))]
    calls = plan_calls(step({i: (5, 1, [0]) for i in range(6)}), LIMITS, LENGTH)
    assert _shapes(calls) == [(DECODE, 0, (4, 1, 1)), (DECODE, 4, (2, 1, 1))]


def test_drafts_are_verified_together_with_room_for_the_longest() -> None:
    calls = plan_calls(step({1: (5, 3, [0, 1, 2]), 0: (9, 5, [4])}), LIMITS, LENGTH)
    assert _shapes(calls) == [(VERIFY, 0, (2, 5, 3))]
    np.testing.assert_array_equal(
        calls[0].tokens, [[103, 104, 105, 106, 107], [100, 101, 102, 0, 0]]
    )
    np.testing.assert_array_equal(calls[0].logit_index, [[4, 0, 0], [0, 1, 2]])


def test_prompts_are_computed_alone_in_chunks_of_rows_and_of_logits() -> None:
    calls = plan_calls(step({2: (0, 36, [35])}), LIMITS, LENGTH)
    assert [call.shape for call in calls] == [(1, 16, 1), (1, 16, 1), (1, 4, 1)]
    assert [int(call.write_indices[0]) for call in calls] == [0, 16, 32]
    assert [call.results for call in calls] == [(), (), ((0, 0, 0),)]
    calls = plan_calls(step({2: (0, 12, list(range(12)))}), LIMITS, LENGTH)
    assert [call.shape for call in calls] == [(1, 3, 3)] * 4
    assert {call.profile for call in calls} == {PREFILL}


@st.composite
def _steps(draw: st.DrawFn) -> dict[int, tuple[int, int, list[int]]]:
    slots = draw(st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True))
    rows = {}
    for slot in slots:
        count = draw(st.integers(1, CONTEXT))
        known = draw(st.integers(0, CONTEXT - count))
        wanted = draw(st.lists(st.integers(0, count - 1), unique=True, max_size=6))
        rows[slot] = (known, count, sorted(wanted))
    return rows


@given(_steps())
def test_every_row_is_computed_once_in_order_and_nothing_else_is_written(
    rows: dict[int, tuple[int, int, list[int]]],
) -> None:
    batch = step(rows)
    calls = plan_calls(batch, LIMITS, LENGTH)
    written = {slot: known for slot, (known, _, _) in rows.items()}
    tokens: dict[int, list[int]] = {slot: [] for slot in rows}
    places: list[int] = []
    for call in calls:
        limit = LIMITS[call.profile]
        size, count, logits = call.shape
        assert size <= limit.batch
        assert count <= limit.rows
        assert logits <= limit.logits
        for index in range(size):
            slot, at = call.base + index, int(call.write_indices[index])
            assert 0 <= at <= LENGTH - count
            if slot not in rows or at == LENGTH - count:
                continue  # idle in this call: writes where nothing is
            assert at == written[slot]
            left = rows[slot][1] - len(tokens[slot])
            new = call.tokens[index][: min(count, left)].tolist()
            tokens[slot] += new
            written[slot] += len(new)
            positions = call.positions[index][: len(new)]
            np.testing.assert_array_equal(positions, np.arange(at, at + len(new)))
        for index, number, place in call.results:
            slot, row = call.base + index, int(call.logit_index[index, number])
            order = list(rows).index(slot)
            absolute = int(call.write_indices[index]) + row - rows[slot][0]
            assert batch.logit_rows[place] == batch.query_starts[order] + absolute
            places.append(place)
    assert sorted(places) == list(range(len(batch.logit_rows)))
    for order, slot in enumerate(rows):
        mine = slice(batch.query_starts[order], batch.query_starts[order + 1])
        assert tokens[slot] == batch.tokens[mine].tolist()


@pytest.mark.parametrize("count", [1, 8])
def test_rows_at_the_end_of_the_context_fit_their_slot(count: int) -> None:
    batch = step({0: (CONTEXT - 1, 1, [0]), 1: (0, count, [0])})
    for call in plan_calls(batch, LIMITS, LENGTH):
        assert (call.write_indices + call.shape[1] <= LENGTH).all()
