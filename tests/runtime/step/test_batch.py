"""The short way to the batch of a row for each sequence gives the arrays of the general one."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, fields, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.executable.executable import Int32, StepBatch
from optc.runtime.kv.kv_blocks import BlockCopy, BlockTables
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.step.batch import build_batch, copied_slots, many_rows, one_row, one_row_each


@dataclass
class Sequence:
    """What a batch reads of a request."""

    path: Int32
    tables: BlockTables
    num_tokens: int
    draft_parents: tuple[int, ...] | None = None

    @property
    def num_verified(self) -> int:
        return self.num_tokens


def a_sequence(tokens: int, groups: int, block_size: int, seed: int) -> Sequence:
    """Random tokens in random blocks; leading ones may be released."""
    rng = np.random.default_rng(seed)
    blocks = -(-tokens // block_size)
    tables = tuple(array("i", rng.permutation(999)[:blocks].tolist()) for _ in range(groups))
    return Sequence(
        rng.integers(0, 99, tokens).astype(np.int32), BlockTables(tables, [0] * groups), tokens
    )


def assert_same(a: StepBatch, b: StepBatch) -> None:
    for one in fields(StepBatch):
        x, y = getattr(a, one.name), getattr(b, one.name)
        if x is None or y is None:
            assert x is y, one.name
            continue
        assert x.dtype == y.dtype, one.name
        assert x.flags.c_contiguous, one.name
        np.testing.assert_array_equal(x, y, one.name)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 90), st.integers(0, 3)), min_size=1, max_size=5),
    groups=st.integers(1, 3),
    block_size=st.integers(1, 32),
    seed=st.integers(0, 9),
)
def test_one_row_each(
    lengths: list[tuple[int, int]], groups: int, block_size: int, seed: int
) -> None:
    """The last token, or one before it, of sequences that are computed up to there."""
    sequences = [
        a_sequence(tokens, groups, block_size, seed + index)
        for index, (tokens, _) in enumerate(lengths)
    ]
    chunks = [
        Chunk(sequence, max(0, tokens - 1 - back), 1)
        for sequence, (tokens, back) in zip(sequences, lengths, strict=True)
    ]
    short = one_row_each(chunks, block_size)
    assert_same(short, many_rows(chunks, groups, block_size))
    assert_same(short, build_batch(chunks, groups, block_size))
    assert_same(short if len(chunks) > 1 else one_row(chunks[0], block_size), short)
    width = max(len(sequence.tables.blocks[0]) for sequence in sequences)
    for row, sequence in enumerate(sequences):
        assert not np.shares_memory(short.tokens, sequence.path)
        for group, table in enumerate(sequence.tables.blocks):
            padded = [*table, *[-1] * (width - len(table))]
            assert short.block_tables[group, row].tolist() == padded


def test_drafts_and_several_rows_take_the_general_way() -> None:
    sequence = a_sequence(20, 1, 4, 0)
    batch = build_batch([Chunk(sequence, 17, 3, 2)], 1, 4)
    assert batch.positions.tolist() == [17, 18, 19]
    batch = build_batch([Chunk(sequence, 19, 1, 0), Chunk(sequence, 18, 1, 0)], 1, 4)
    assert batch.positions.tolist() == [19, 18]


def test_copies_are_slots_of_whole_groups() -> None:
    copies = [BlockCopy(1, 2, 5, 3), BlockCopy(0, 1, 4, 2), BlockCopy(1, 0, 3, 1)]
    found = [(g, s.tolist(), t.tolist()) for g, s, t in copied_slots(copies, 4)]
    assert found == [(0, [4, 5], [16, 17]), (1, [8, 9, 10, 0], [20, 21, 22, 12])]


@given(
    rows=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 4)), min_size=1, max_size=5),
    states=st.sets(st.integers(0, 2)),
    block_size=st.integers(1, 32),
)
def test_drafts_have_no_slots_where_blocks_hold_states(
    rows: list[tuple[int, int]], states: set[int], block_size: int
) -> None:
    chunks = []
    for seed, (known, drafted) in enumerate(rows):
        sequence = a_sequence(known + drafted, 3, block_size, seed)
        sequence.num_tokens = known
        chunks.append(Chunk(sequence, known // 2, known - known // 2 + drafted, drafted))
    plain = build_batch(chunks, 3, block_size)
    batch = build_batch(chunks, 3, block_size, states=states)
    wanted, end = plain.slot_mapping.copy(), 0
    for chunk in chunks:
        end += chunk.rows
        for group in states:
            wanted[group, end - chunk.drafted : end] = -1
    np.testing.assert_array_equal(batch.slot_mapping, wanted)
    assert_same(replace(batch, slot_mapping=plain.slot_mapping), plain)
