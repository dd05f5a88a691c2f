"""Steps with trees as the kernels take them: runs, block tables and copies, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tvm.loaded.tree_paths import cut
from optc.errors import InputError
from optc.runtime.executable.executable import StepBatch


def batch(known: int, parents: list[int], tables: list[int], block_size: int = 16) -> StepBatch:
    """One sequence with ``known`` tokens and a row for each of ``parents``; one KV group."""
    rows = len(parents)
    at = known + np.arange(rows)
    slots = np.array(tables)[at // block_size] * block_size + at % block_size
    return StepBatch(
        tokens=np.zeros(rows, np.int32),
        positions=np.zeros(rows, np.int32),
        slot_mapping=slots[None].astype(np.int32),
        query_starts=np.array([0, rows], np.int32),
        kv_lengths=np.array([[known + rows]], np.int32),
        block_tables=np.array([[tables]], np.int32),
        logit_rows=np.arange(rows, dtype=np.int32),
        tree_parent=np.array(parents, np.int32),
    )


def test_runs_become_sequences_with_blocks_of_their_own() -> None:
    # a-b-c, a-d-e, b-f behind 20 tokens in blocks 5 and 3
    step = batch(20, [-1, 0, 1, 0, 3, 1], [5, 3])
    paths = cut(step, 16, [range(40, 50)])
    assert paths.batch.query_starts.tolist() == [0, 3, 5, 6]
    assert paths.batch.kv_lengths.tolist() == [[23, 23, 23]]
    assert paths.batch.block_tables.tolist() == [[[5, 3], [5, 40], [5, 41]]]
    assert paths.tiles.tolist() == [[[3, 3], [40, 41]]], "the known tokens of the last block"
    slots = 3 * 16 + 4 + np.array([0, 3, 4, 0, 1, 5])
    places = np.array([*(40 * 16 + 4 + i for i in range(3)), *(41 * 16 + 4 + i for i in range(3))])
    assert paths.slots[0, :, :6].tolist() == [slots.tolist(), places.tolist()]
    assert (paths.slots[0, :, 6:] == -1).all()


def test_a_full_last_block_is_not_copied_and_paths_may_need_two() -> None:
    step = batch(32, [-1, 0, 0], [5, 3, 9])
    paths = cut(step, 16, [range(40, 50)])
    assert paths.batch.block_tables.tolist() == [[[5, 3, 9], [5, 3, 40]]]
    assert (paths.tiles == -1).all()
    step = batch(47, [-1, 0, 0], [5, 3, 9, 7])
    paths = cut(step, 16, [range(40, 50)])
    assert paths.batch.block_tables.tolist() == [[[5, 3, 9, 7], [5, 3, 40, 41]]]
    assert paths.slots[0, 1].tolist() == [40 * 16 + 15, 41 * 16]


def test_of_a_large_block_only_tiles_in_use_are_copied() -> None:
    paths = cut(batch(64 + 17, [-1, 0, 0], [2, 6], 64), 64, [range(40, 50)])
    assert paths.tiles.tolist() == [[[6 * 4, 6 * 4 + 1], [40 * 4, 40 * 4 + 1]]]


def test_a_chain_stays_as_it_is() -> None:
    step = batch(20, [-1, 0, 1, 2], [5, 3])
    paths = cut(step, 16, [range(0)])
    assert paths.batch is step
    assert (paths.tiles == -1).all()
    assert (paths.slots == -1).all()


def test_trees_beyond_the_scratch_blocks_are_refused() -> None:
    with pytest.raises(InputError, match="need 3 scratch blocks, there are 2"):
        cut(batch(20, [-1, 0, 0, 0, 0], [5, 3]), 16, [range(40, 42)])
