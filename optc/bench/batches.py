"""Steps made up for measuring: any tokens, any blocks, every sequence of the same shape."""

from __future__ import annotations

import numpy as np

from optc.runtime.executable import EngineSpec, Int32, StepBatch


def block_count(sequences: int, length: int, block_size: int) -> int:
    """Blocks that `step_batch` uses in each group."""
    return sequences * -(-length // block_size)


def step_batch(
    spec: EngineSpec, sequences: int, new_rows: int, length: int, block_size: int
) -> StepBatch:
    """A step of ``sequences`` with ``new_rows`` rows each, at ``length`` tokens after it.

    The last row of every sequence wants logits. Blocks are numbered in order of the sequences;
    windowed groups keep all of theirs.
    """
    groups, blocks = len(spec.groups), -(-length // block_size)
    positions = np.tile(np.arange(length - new_rows, length), sequences)
    first_slot = np.repeat(np.arange(sequences) * blocks * block_size, new_rows)
    tables = np.arange(sequences * blocks).reshape(sequences, blocks)
    ends = np.arange(sequences + 1) * new_rows
    return StepBatch(
        tokens=_int32(np.arange(positions.size) % spec.vocab_size),
        positions=_int32(positions),
        slot_mapping=_int32(np.tile(first_slot + positions, (groups, 1))),
        query_starts=_int32(ends),
        kv_lengths=_int32(np.full((groups, sequences), length)),
        block_tables=_int32(np.tile(tables, (groups, 1, 1))),
        logit_rows=_int32(ends[1:] - 1),
    )


def _int32(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Int32:
    return np.ascontiguousarray(values, np.int32)
