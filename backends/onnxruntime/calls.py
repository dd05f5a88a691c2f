"""The calls of the model that a step becomes: one for all that decode, one for each other sequence.

The operator for attention takes rows of different lengths only if each has one new token, and
several new tokens only of one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.runtime.executable.executable import Int32, StepBatch, StepInterface
from optc.runtime.executable.step_limits import check_limits

Int64 = npt.NDArray[np.int64]


class Call(NamedTuple):
    """One run of the model: some slots from ``first`` on, with equally many new rows.

    Attributes:
        first: First slot.
        tokens: [count, S] new tokens of each slot, any token where a slot is not in the step.
        wanted: [R] which of the S rows have logits, of every slot.
        starts: [count] tokens in each slot before the call.
        logit_rows: [count * R] rows of the step whose logits the call gives; -1 of idle slots.
    """

    first: int
    tokens: Int32
    wanted: Int64 | Int32
    starts: Int64
    logit_rows: Int64 | Int32


def check_linear(batch: StepBatch) -> None:
    """Check for what only TVM's engines take.

    Raises:
        InputError: There are trees or adapters.
    """
    if batch.tree_parent is not None or batch.adapters is not None:
        raise InputError("the engine takes no trees of drafts and no adapters", where="step")


def check_step(batch: StepBatch, spec: StepInterface, slots: int, tokens: int) -> None:
    """Check a step against the engine's limits and its slots.

    Raises:
        InputError: A limit is exceeded, there are trees or adapters, or a sequence does not lie in
            one slot.
    """
    check_limits(batch, spec)
    check_linear(batch)
    held = batch.block_tables[0, :, 0].tolist()
    if max(batch.kv_lengths[0].tolist()) > tokens or min(held) < 0 or max(held) >= slots:
        raise InputError(
            f"a sequence does not lie in one of {slots} slots of {tokens} tokens", where="step"
        )


def calls_of(batch: StepBatch, lengths: Int64) -> Iterator[Call]:
    """The calls of a step, those that decode first: a row behind the tokens of a slot that is not
    in the step, or not with one row, is written before its own rows overwrite it.

    Args:
        batch: The step, checked.
        lengths: [slots] tokens that each slot may hold.
    """
    if batch.block_tables.shape[1] == 1:
        yield _only_call(batch)
        return
    ends = batch.query_starts.astype(np.int64)
    counts = np.diff(ends)
    held = batch.block_tables[0, :, 0].astype(np.int64)
    before = batch.kv_lengths[0] - counts
    decodes = np.flatnonzero(counts == 1)
    order = decodes[np.argsort(held[decodes])]
    for run in _near(order, held):
        yield _decoding(batch, run, held[run], before[run], lengths)
    for b in np.flatnonzero(counts > 1):
        rows = slice(int(ends[b]), int(ends[b + 1]))
        yield _sequence(batch, int(held[b]), before[b : b + 1], rows)


def _only_call(batch: StepBatch) -> Call:
    """The step of a single sequence; what it costs here, every token of a single user pays."""
    count = batch.tokens.size
    start = int(batch.kv_lengths[0, 0]) - count
    slot = int(batch.block_tables[0, 0, 0])
    wanted = batch.logit_rows
    return Call(slot, batch.tokens[None], wanted, np.array([start]), wanted)


def _decoding(batch: StepBatch, run: Int64, held: Int64, before: Int64, lengths: Int64) -> Call:
    """One row each of the sequences ``run``, in order of the slots ``held``."""
    first, last = int(held[0]), int(held[-1])
    rows = np.full(last - first + 1, -1)
    rows[held - first] = batch.query_starts[run]
    starts = lengths[first : last + 1].copy()
    starts[held - first] = before
    tokens = np.where(rows < 0, 0, batch.tokens[rows]).astype(np.int32)
    return Call(first, tokens[:, None], np.zeros(1, np.int64), starts, rows)


def _sequence(batch: StepBatch, slot: int, before: Int64, rows: slice) -> Call:
    """Several rows of one sequence."""
    mine = batch.logit_rows[(batch.logit_rows >= rows.start) & (batch.logit_rows < rows.stop)]
    logit_rows = np.unique(mine).astype(np.int64)
    if not logit_rows.size:
        logit_rows = np.array([rows.stop - 1])  # of no use, but no axis is empty
    tokens = batch.tokens[None, rows]
    return Call(slot, tokens, logit_rows - rows.start, before.astype(np.int64), logit_rows)


def _near(order: Int64, held: Int64) -> Iterator[Int64]:
    """Sequences in order of their slots, cut where more slots lie idle between them than it is
    worth to compute: half of a call's."""
    begin = 0
    for end in range(1, len(order) + 1):
        if end < len(order):
            span = held[order[end]] - held[order[begin]] + 1
            if span <= 2 * (end + 1 - begin):
                continue
        yield order[begin:end]
        begin = end
