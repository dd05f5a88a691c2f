"""From the scheduler's chunks to the arrays of one ragged step."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

from optc.runtime.executable.executable import Int32, StepBatch
from optc.runtime.kv.kv_blocks import RELEASED, BlockCopy, BlockTables
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.step.tree import HasDrafts, place_drafts

_ENTRY_BYTES = np.dtype(np.int32).itemsize
#: A byte of -1, that of entries without a block.
_PADDING = RELEASED.to_bytes(1, signed=True)


class HasPath(HasDrafts, Protocol):
    """Whose rows a step computes."""

    tables: BlockTables

    @property
    def path(self) -> Int32:
        """[n] the known tokens and the drafts behind them."""
        ...

    @property
    def num_verified(self) -> int:
        """Tokens that are no drafts."""
        ...


R = TypeVar("R", bound=HasPath)


def build_batch(
    chunks: Sequence[Chunk[R]],
    groups: int,
    block_size: int,
    scored: Sequence[int] = (),
    states: Collection[int] = (),
) -> StepBatch:
    """The arrays of a step over ``chunks`` (at least one), in their order.

    Logits are asked for the last row of every chunk that completes its request and for its
    drafts, in order, and behind these for the rows ``scored``. If there are none, the last row is
    asked for all the same, so that R is never 0; its logits are of no use.

    Drafts have no slots in the groups ``states``, whose blocks hold states: these stay as they are
    behind the verified tokens.
    """
    if states and any(c.start + c.rows > c.request.num_verified for c in chunks):
        return without_drafts(chunks, many_rows(chunks, groups, block_size, scored), states)
    if len(chunks) == 1 and chunks[0].rows == 1 and not chunks[0].drafted:
        return one_row(chunks[0], block_size)
    if all(chunk.rows == 1 and not chunk.drafted for chunk in chunks):
        return one_row_each(chunks, block_size, scored)
    return many_rows(chunks, groups, block_size, scored)


def one_row(chunk: Chunk[R], block_size: int) -> StepBatch:
    """`build_batch` of one sequence with one row. A single user pays for every call of NumPy with
    every token: here there are as few as there are arrays."""
    request, start = chunk.request, chunk.start
    blocks = request.tables.blocks
    entry, offset = divmod(start, block_size)
    return StepBatch(
        tokens=np.array(request.path[start : start + 1]),
        positions=np.array([start], np.int32),
        slot_mapping=np.array([[t[entry] * block_size + offset] for t in blocks], np.int32),
        query_starts=np.array([0, 1], np.int32),
        kv_lengths=np.array([[start + 1]] * len(blocks), np.int32),
        block_tables=np.array([[table] for table in blocks], np.int32),
        logit_rows=np.zeros(1, np.int32),
        tree_parent=None,
    )


def one_row_each(
    chunks: Sequence[Chunk[R]], block_size: int, scored: Sequence[int] = ()
) -> StepBatch:
    """`build_batch` of a row for each sequence, without drafts, in few calls of NumPy as well."""
    starts = [chunk.start for chunk in chunks]
    groups = list(zip(*(chunk.request.tables.blocks for chunk in chunks), strict=True))
    slots = [
        [table[at // block_size] * block_size + at % block_size for table, at in pairs]
        for pairs in (zip(group, starts, strict=True) for group in groups)
    ]
    wanted = [row for row, chunk in enumerate(chunks) if chunk.completes]
    wanted.extend(scored)
    return StepBatch(
        tokens=np.array([c.request.path.item(c.start) for c in chunks], np.int32),
        positions=np.array(starts, np.int32),
        slot_mapping=np.array(slots, np.int32),
        query_starts=np.arange(len(chunks) + 1, dtype=np.int32),
        kv_lengths=np.array([[at + 1 for at in starts]] * len(groups), np.int32),
        block_tables=_block_tables(groups),
        logit_rows=np.array(wanted or [len(chunks) - 1], np.int32),
        tree_parent=None,
    )


def many_rows(
    chunks: Sequence[Chunk[R]], groups: int, block_size: int, scored: Sequence[int] = ()
) -> StepBatch:
    """`build_batch` of any chunks."""
    counts = np.array([chunk.rows for chunk in chunks], np.int32)
    starts = np.array([chunk.start for chunk in chunks], np.int32)
    query_starts = np.zeros(len(chunks) + 1, np.int32)
    np.cumsum(counts, out=query_starts[1:])
    tables = _block_tables(list(zip(*(c.request.tables.blocks for c in chunks), strict=True)))
    rows = np.arange(query_starts[-1], dtype=np.int32)
    indices = starts  # in the sequences' KV, in order of rows
    if len(rows) > len(chunks):  # not a row each, as in decode
        offsets, rows = rows, np.repeat(rows[: len(chunks)], counts)
        indices = offsets + (starts - query_starts[:-1])[rows]
    blocks = tables[:, rows, indices // block_size]
    slots = blocks * block_size + indices % block_size
    positions, tree_parent = place_drafts(chunks, query_starts, indices)
    wanted = [
        row
        for chunk, end in zip(chunks, query_starts[1:].tolist(), strict=True)
        if chunk.completes
        for row in range(end - 1 - chunk.drafted, end)
    ]
    wanted.extend(scored)
    return StepBatch(
        tokens=np.concatenate([c.request.path[c.start : c.start + c.rows] for c in chunks]),
        positions=positions,
        slot_mapping=np.ascontiguousarray(slots, np.int32),
        query_starts=query_starts,
        kv_lengths=np.array([starts + counts] * groups),
        block_tables=tables,
        logit_rows=np.array(wanted or [len(positions) - 1], np.int32),
        tree_parent=tree_parent,
    )


def without_drafts(
    chunks: Sequence[Chunk[R]], batch: StepBatch, groups: Collection[int]
) -> StepBatch:
    """The batch with no slots for drafts in some groups."""
    slots = batch.slot_mapping
    for chunk, end in zip(chunks, batch.query_starts[1:].tolist(), strict=True):
        drafts = min(chunk.rows, max(0, chunk.start + chunk.rows - chunk.request.num_verified))
        for group in groups:
            slots[group, end - drafts : end] = RELEASED
    return batch


def copied_slots(
    copies: Sequence[BlockCopy], block_size: int
) -> Iterator[tuple[int, Int32, Int32]]:
    """Group, source slots [n] and target slots [n] of copies, for `Executable.copy_kv`."""
    for group in sorted({copy.group for copy in copies}):
        mine = [copy for copy in copies if copy.group == group]
        offsets = [np.arange(copy.tokens, dtype=np.int32) for copy in mine]
        pairs = list(zip(mine, offsets, strict=True))
        yield (
            group,
            np.concatenate([copy.source * block_size + offset for copy, offset in pairs]),
            np.concatenate([copy.target * block_size + offset for copy, offset in pairs]),
        )


def _block_tables(groups: Sequence[Sequence[array[int]]]) -> Int32:
    """[G, B, P] block tables, padded with -1.

    Args:
        groups: By group, the tables of all sequences.
    """
    width = max(map(len, groups[0])) * _ENTRY_BYTES
    rows = [table.tobytes().ljust(width, _PADDING) for group in groups for table in group]
    tables = np.frombuffer(bytearray().join(rows), np.int32)
    return tables.reshape(len(groups), len(groups[0]), -1)
