"""Which calls of the model a step becomes: one for all that decode, one for each other sequence.

The operator for attention takes rows of different lengths only if each has one new token, and
several new tokens only of one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.runtime.executable import EngineSpec, StepBatch

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Call:
    """One run of the model: ``count`` slots from ``first`` on, with equally many new rows.

    Attributes:
        first: First slot.
        count: How many slots, those between two that decode included.
        rows: [count, S] rows of the step; -1 where a slot is not in the step.
        wanted: [R] which of the S rows have logits, of every slot.
        starts: [count] tokens in each slot before the call.
    """

    first: int
    count: int
    rows: Int64
    wanted: Int64
    starts: Int64


def check_step(batch: StepBatch, spec: EngineSpec, slots: int, tokens: int) -> None:
    """Check a step against the engine's limits and its slots.

    Raises:
        InputError: A limit is exceeded, there are trees or adapters, or a sequence does not lie in
            one slot.
    """
    for what, value, limit in (
        ("rows", batch.tokens.size, spec.max_rows),
        ("sequences", batch.block_tables.shape[1], spec.max_sequences),
        ("rows of logits", batch.logit_rows.size, spec.max_logit_rows),
    ):
        if not 0 < value <= limit:
            raise InputError(
                f"{value} {what}; the engine takes 1 to {limit} in one step", where="step"
            )
    if batch.tree_parent is not None or batch.adapters is not None:
        raise InputError("the engine takes no trees of drafts and no adapters", where="step")
    held = batch.block_tables[0, :, 0]
    if batch.kv_lengths.max() > tokens or held.min() < 0 or held.max() >= slots:
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
    starts = batch.query_starts.astype(np.int64)
    counts = np.diff(starts)
    held = batch.block_tables[0, :, 0].astype(np.int64)
    before = batch.kv_lengths[0] - counts
    decodes = np.flatnonzero(counts == 1)
    order = decodes[np.argsort(held[decodes])]
    for run in _near(order, held):
        first, last = held[run[0]], held[run[-1]]
        rows = np.full((last - first + 1, 1), -1)
        rows[held[run] - first, 0] = starts[run]
        tokens = lengths[first : last + 1].copy()
        tokens[held[run] - first] = before[run]
        yield Call(int(first), len(rows), rows, np.zeros(1, np.int64), tokens)
    for b in np.flatnonzero(counts > 1):
        rows = np.arange(starts[b], starts[b + 1])
        mine = batch.logit_rows[(batch.logit_rows >= rows[0]) & (batch.logit_rows <= rows[-1])]
        wanted = np.unique(mine).astype(np.int64) - rows[0]
        if not wanted.size:
            wanted = np.array([len(rows) - 1])  # of no use, but no axis is empty
        yield Call(int(held[b]), 1, rows[None], wanted, before[b : b + 1].astype(np.int64))


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
