"""From a ragged step to calls over neighbouring slots.

A call computes B slots that lie one after the other in the pools, from slot ``base`` on, each with
S new rows. Decoding sequences share calls; so do those with a few rows (drafts, ends of prompts);
a long prompt is computed alone, in chunks. Slots in between that have nothing to do, and rows that
a shorter sequence does not have, write where no sequence reads: behind all tokens that a slot may
hold (`optc.backends.tensorrt.limits.slot_length`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.backends.tensorrt.limits import Limits
from optc.runtime.executable.executable import Int32, StepBatch

Int64 = npt.NDArray[np.int64]
#: Idle slots in a row that a call computes along; a call of its own costs more than they do.
_GAP = 8
DECODE, VERIFY, PREFILL = range(3)


@dataclass(frozen=True)
class Call:
    """One run of the engine. B slots, S rows of each, R rows of logits of each.

    Attributes:
        profile: Index of the profile.
        base: The first slot.
        tokens: [B, S].
        positions: [B, S].
        write_indices: [B] tokens that each slot holds before.
        logit_index: [B, R] rows whose logits are wanted.
        results: For each wanted row: its place in [B, R], and that in the step's logits.
    """

    profile: int
    base: int
    tokens: Int32
    positions: Int32
    write_indices: Int64
    logit_index: Int64
    results: tuple[tuple[int, int, int], ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """B, S and R."""
        return (*self.tokens.shape, self.logit_index.shape[1])


@dataclass(frozen=True)
class _Part:
    """Rows of one sequence: ``first`` and ``count`` in the step, and of which logits are wanted
    (row within the part, place in the step's logits)."""

    slot: int
    written: int
    first: int
    count: int
    wanted: tuple[tuple[int, int], ...]


def plan_calls(batch: StepBatch, limits: Sequence[Limits], slot_length: int) -> list[Call]:
    """The calls of a step, in an order in which they may run."""
    few: dict[int, list[_Part]] = {DECODE: [], VERIFY: []}
    alone: list[_Part] = []
    for part in _parts(batch):
        profile = next((i for i in few if _fits(part, limits[i])), None)
        if profile is None:
            alone += _chunks(part, limits[PREFILL])
        else:
            few[profile].append(part)
    calls = [
        _call(batch, profile, run, slot_length)
        for profile, parts in few.items()
        for run in _runs(parts, limits[profile].batch)
    ]
    return calls + [_call(batch, PREFILL, [part], slot_length) for part in alone]


def _parts(batch: StepBatch) -> Iterator[_Part]:
    starts = batch.query_starts.tolist()
    wanted: dict[int, list[tuple[int, int]]] = {}
    owners = np.searchsorted(batch.query_starts, batch.logit_rows, side="right") - 1
    for place, (row, owner) in enumerate(
        zip(batch.logit_rows.tolist(), owners.tolist(), strict=True)
    ):
        wanted.setdefault(owner, []).append((row - starts[owner], place))
    for index, (first, end) in enumerate(itertools.pairwise(starts)):
        count = end - first
        yield _Part(
            slot=int(batch.block_tables[0, index, 0]),
            written=int(batch.kv_lengths[0, index]) - count,
            first=first,
            count=count,
            wanted=tuple(wanted.get(index, ())),
        )


def _fits(part: _Part, limit: Limits) -> bool:
    return part.count <= limit.rows and len(part.wanted) <= limit.logits


def _chunks(part: _Part, limit: Limits) -> Iterator[_Part]:
    """Pieces of a long part that fit ``limit``, in order."""
    start = 0
    while start < part.count:
        stop = min(start + limit.rows, part.count)
        inside = [pair for pair in part.wanted if start <= pair[0] < stop]
        if len(inside) > limit.logits:
            stop = inside[limit.logits][0]
            inside = inside[: limit.logits]
        yield _Part(
            part.slot,
            part.written + start,
            part.first + start,
            stop - start,
            tuple((row - start, place) for row, place in inside),
        )
        start = stop


def _runs(parts: list[_Part], batch: int) -> Iterator[list[_Part]]:
    """Parts of one call each: slots that lie near each other, ``batch`` of them at most."""
    run: list[_Part] = []
    for part in sorted(parts, key=lambda one: one.slot):
        if run and (part.slot - run[0].slot >= batch or part.slot - run[-1].slot > _GAP):
            yield run
            run = []
        run.append(part)
    if run:
        yield run


def _call(batch: StepBatch, profile: int, parts: list[_Part], slot_length: int) -> Call:
    base = parts[0].slot
    slots, rows = parts[-1].slot - base + 1, max(part.count for part in parts)
    logits = max(1, *(len(part.wanted) for part in parts))
    tokens, positions = np.zeros((2, slots, rows), np.int32)
    writes = np.full(slots, slot_length - rows, np.int64)
    index = np.zeros((slots, logits), np.int64)
    results = []
    for part in parts:
        at, mine = part.slot - base, slice(part.first, part.first + part.count)
        tokens[at, : part.count] = batch.tokens[mine]
        positions[at, : part.count] = batch.positions[mine]
        writes[at] = part.written
        for number, (row, place) in enumerate(part.wanted):
            index[at, number] = row
            results.append((at, number, place))
    return Call(profile, base, tokens, positions, writes, index, tuple(results))
