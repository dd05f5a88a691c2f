"""A step with trees as linear sequences: what the attention kernel is given for it.

The kernel knows no trees, so that a row's bits are those of linear decoding by construction. A
sequence whose rows form a tree is cut into *runs*, in which each row follows the one before. The
first run is the sequence itself, as far as it goes. Every other run is presented as a sequence of
its own: its block table begins with the blocks of the tokens known before the step, and ends in
*scratch* blocks, which lie behind the pools' own. Into these each layer copies, once its keys and
values are written: the known tokens of the last partial block (whole tiles of 16 slots), then the
run's ancestors and the run itself (single slots), each to where it lies on its path.

    slots of the step        known … | a b c d e f        a─b─c, a─d, a─d─e, b─f
    sequences of the kernel  known … | a b c              its own blocks
                             known … | a d e              scratch
                             known … | a b f              scratch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from optc.errors import InputError
from optc.runtime.executable.executable import Int32, StepBatch, StepInterface

#: Slots of one tile of the pools.
TILE = 16
#: Scratch blocks for each row of logits: a run of at most 16 rows and ancestors needs two.
SCRATCH_BLOCKS = 2
#: Padding of a list of copies.
NO_COPY = -1


@dataclass(frozen=True)
class Run:
    """Rows ``first`` to ``end`` of the step, each following the one before.

    Attributes:
        sequence: Whose rows they are.
        ancestors: The rows that the first one descends from, in order of depth; the run that
            starts its sequence has none.
    """

    sequence: int
    first: int
    end: int
    ancestors: tuple[int, ...]

    @property
    def path(self) -> list[int]:
        """Rows of the step from the sequence's first one to the run's last."""
        return [*self.ancestors, *range(self.first, self.end)]


class Paths(NamedTuple):
    """A step for the kernel.

    Attributes:
        batch: The step, with one sequence for each run.
        tiles: [G, 2, N] pool tiles to copy before the slots: from, to; padded with -1.
        slots: [G, 2, M] slots to copy: from, to; padded with -1.
    """

    batch: StepBatch
    tiles: Int32
    slots: Int32


def scratch_blocks(spec: StepInterface, blocks_per_group: Sequence[int]) -> tuple[range, ...]:
    """By KV group, the blocks behind the pools' own that the paths of trees may use."""
    spare = SCRATCH_BLOCKS * spec.max_logit_rows if spec.tree else 0
    return tuple(range(count, count + spare) for count in blocks_per_group)


def no_copies(groups: int) -> Int32:
    """[G, 2, 1] the list of copies of a step without trees."""
    return np.full((groups, 2, 1), NO_COPY, np.int32)


def cut(batch: StepBatch, block_size: int, scratch: Sequence[range]) -> Paths:
    """The step as the kernel takes it.

    Args:
        batch: With ``tree_parent``.
        block_size: Tokens a block.
        scratch: By KV group, the blocks that may be used.

    Raises:
        InputError: A row does not descend from an earlier row of its sequence, or the paths need
            more scratch blocks than there are.
    """
    runs = _runs(batch)
    if len(runs) == len(batch.query_starts) - 1:
        return Paths(batch, no_copies(len(scratch)), no_copies(len(scratch)))
    groups = range(len(scratch))
    known = batch.kv_lengths[0] - np.diff(batch.query_starts)
    tails = [_Tail(run, int(known[run.sequence]), block_size) for run in runs]
    tables = [_tables(batch.block_tables[g], tails, scratch[g]) for g in groups]
    copies = [_copies(batch, g, tails, tables[g], block_size) for g in groups]
    lengths = [int(known[run.sequence]) + len(run.path) for run in runs]
    expanded = replace(
        batch,
        query_starts=np.array([*(run.first for run in runs), runs[-1].end], np.int32),
        kv_lengths=np.array([lengths] * len(scratch), np.int32),
        block_tables=np.stack(tables),
    )
    return Paths(expanded, *(_padded(kind) for kind in zip(*copies, strict=True)))


def _runs(batch: StepBatch) -> list[Run]:
    parents, starts = batch.tree_parent, batch.query_starts
    if parents is None or parents.shape != batch.tokens.shape:
        raise InputError("tree_parent needs one entry for each row", where="step input")
    runs: list[Run] = []
    for sequence, (start, end) in enumerate(pairwise(starts.tolist())):
        mine = parents[start:end].tolist()
        if mine[0] != -1 or any(
            not start <= parent < row for row, parent in enumerate(mine[1:], start + 1)
        ):
            raise InputError(
                "a row must descend from an earlier one of its sequence, the first from -1",
                where="tree_parent",
            )
        firsts = [start, *(r for r in range(start + 1, end) if mine[r - start] != r - 1)]
        for first, stop in zip(firsts, [*firsts[1:], end], strict=True):
            ancestors: list[int] = []
            parent = mine[first - start]
            while parent >= 0:
                ancestors.insert(0, parent)
                parent = mine[parent - start]
            runs.append(Run(sequence, first, stop, tuple(ancestors)))
    return runs


class _Tail:
    """The blocks of a run that differ from its sequence's own: none for the first run."""

    def __init__(self, run: Run, known: int, block_size: int) -> None:
        self.run, self.known = run, known
        #: index of the first such block, and how many there are
        self.block = known // block_size
        last = (known + len(run.path) - 1) // block_size
        self.blocks = last - self.block + 1 if run.ancestors else 0


def _tables(own: Int32, tails: Sequence[_Tail], scratch: range) -> Int32:
    """[runs, P] block tables: those of the sequences [B, P], with scratch blocks at their ends."""
    needed = sum(tail.blocks for tail in tails)
    if needed > len(scratch):
        raise InputError(
            f"the trees of this step need {needed} scratch blocks, there are {len(scratch)}",
            where="tree_parent",
            hint="draft fewer or shorter paths",
        )
    width = max(own.shape[1], max(tail.block + tail.blocks for tail in tails))
    tables = np.full((len(tails), width), -1, np.int32)
    used = scratch.start
    for row, tail in enumerate(tails):
        tables[row, : own.shape[1]] = own[tail.run.sequence]
        tables[row, tail.block : tail.block + tail.blocks] = range(used, used + tail.blocks)
        used += tail.blocks
    return tables


def _copies(
    batch: StepBatch, group: int, tails: Sequence[_Tail], tables: Int32, block_size: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Tiles and slots to copy in a group: from, to."""
    tiles: list[tuple[int, int]] = []
    slots: list[tuple[int, int]] = []
    per_block = block_size // TILE
    for tail, table in zip(tails, tables.tolist(), strict=True):
        if not tail.blocks:
            continue
        own = int(batch.block_tables[group, tail.run.sequence, tail.block])
        tiles += [
            (own * per_block + tile, table[tail.block] * per_block + tile)
            for tile in range(-(-(tail.known % block_size) // TILE))
        ]
        for place, row in enumerate(tail.run.path, tail.known):
            to = table[place // block_size] * block_size + place % block_size
            slots.append((int(batch.slot_mapping[group, row]), to))
    return tiles, slots


def _padded(groups: Sequence[Sequence[tuple[int, int]]]) -> Int32:
    """[G, 2, N], N a power of two, so that steps meet few shapes."""
    longest = max(len(pairs) for pairs in groups)
    width = 1 << max(0, longest - 1).bit_length()
    array = np.full((len(groups), 2, width), NO_COPY, np.int32)
    for group, pairs in enumerate(groups):
        if pairs:
            array[group, :, : len(pairs)] = np.array(pairs, np.int32).T
    return array
