"""Steps made up for measuring: any tokens, any blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from optc.runtime.executable.executable import Int32, StepBatch, StepInterface


def block_count(sequences: int, length: int, block_size: int) -> int:
    """Blocks that `step_batch` uses in each group."""
    return sequences * -(-length // block_size)


def step_batch(
    spec: StepInterface, sequences: int, new_rows: int, length: int, block_size: int
) -> StepBatch:
    """A step of ``sequences`` alike, with ``new_rows`` rows each, at ``length`` tokens after it."""
    return ragged_batch(spec, [(new_rows, length)] * sequences, block_size)


def ragged_batch(
    spec: StepInterface, sequences: Sequence[tuple[int, int]], block_size: int
) -> StepBatch:
    """A step of sequences that are given by their new rows and their tokens after it.

    The last row of every sequence wants logits. Blocks are numbered in order of the sequences;
    windowed groups keep all of theirs.
    """
    groups = len(spec.groups)
    counts = [-(-length // block_size) for _, length in sequences]
    firsts = list(accumulate(counts, initial=0))
    tables = np.full((len(sequences), max(counts)), -1)
    for row, (first, count) in enumerate(zip(firsts, counts, strict=False)):
        tables[row, :count] = np.arange(first, first + count)
    positions = np.concatenate([np.arange(length - new, length) for new, length in sequences])
    owner = np.repeat(np.arange(len(sequences)), [new for new, _ in sequences])
    slots = np.array(firsts)[owner] * block_size + positions
    ends = np.array(list(accumulate((new for new, _ in sequences), initial=0)))
    lengths = np.array([length for _, length in sequences])
    return StepBatch(
        tokens=_int32(np.arange(positions.size) % spec.vocab_size),
        positions=_int32(positions),
        slot_mapping=_int32(np.tile(slots, (groups, 1))),
        query_starts=_int32(ends),
        kv_lengths=_int32(np.tile(lengths, (groups, 1))),
        block_tables=_int32(np.tile(tables, (groups, 1, 1))),
        logit_rows=_int32(ends[1:] - 1),
    )


def _int32(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Int32:
    return np.ascontiguousarray(values, np.int32)
