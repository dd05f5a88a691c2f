"""How a step is cut into calls: every row once, no slot written where it holds something."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.backends.onnxruntime.calls import calls_of
from optc.runtime.executable.executable import StepBatch

SLOTS = 12


@st.composite
def steps(draw: st.DrawFn) -> tuple[StepBatch, np.ndarray]:  # type: ignore[type-arg]
    held = draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=SLOTS, unique=True))
    counts = [draw(st.sampled_from([1, 1, 1, 2, 5])) for _ in held]
    before = [draw(st.integers(0, 20)) for _ in held]
    lengths = np.array([draw(st.integers(0, 30)) for _ in range(SLOTS)], np.int64)
    for slot, length in zip(held, before, strict=True):
        lengths[slot] = max(lengths[slot], length)
    ends = np.cumsum([0, *counts])
    wanted = draw(st.lists(st.integers(0, int(ends[-1]) - 1), min_size=1, unique=True))
    nothing = np.zeros(int(ends[-1]), np.int32)
    batch = StepBatch(
        tokens=np.arange(ends[-1], dtype=np.int32),
        positions=nothing,
        slot_mapping=nothing[None],
        query_starts=ends.astype(np.int32),
        kv_lengths=np.array([np.add(before, counts)], np.int32),
        block_tables=np.array(held, np.int32)[None, :, None],
        logit_rows=np.array(wanted, np.int32),
    )
    return batch, lengths


@settings(deadline=None, derandomize=True)
@given(steps())
def test_every_row_is_computed_once_at_its_place(step: tuple[StepBatch, np.ndarray]) -> None:  # type: ignore[type-arg]
    batch, lengths = step
    known = lengths.copy()
    held = batch.block_tables[0, :, 0]
    owner = np.repeat(np.arange(len(held)), np.diff(batch.query_starts))
    done: list[int] = []
    with_logits: list[int] = []
    for call in calls_of(batch, lengths):
        count, new = call.tokens.shape
        assert len(call.starts) == count
        assert len(call.logit_rows) == count * len(call.wanted)
        assert count == 1 or new == 1
        idle = 0
        for offset in range(count):
            slot, start = call.first + offset, call.starts[offset]
            if call.logit_rows[offset * len(call.wanted)] < 0:  # computed for nothing
                idle += 1
                assert start >= known[slot]  # behind what the slot holds
                continue
            b = held.tolist().index(slot)
            rows = range(*batch.query_starts[b : b + 2])
            assert start == batch.kv_lengths[0, b] - len(rows)
            assert call.tokens[offset].tolist() == list(rows)  # tokens name their rows
            done += rows
            known[slot] = batch.kv_lengths[0, b]
        assert 2 * idle <= count
        with_logits += call.logit_rows.tolist()
    assert sorted(done) == list(range(len(owner)))
    assert set(batch.logit_rows.tolist()) <= set(with_logits)
