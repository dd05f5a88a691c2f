"""The cost of a step by its rows, measured on the engine that will run."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optc.runtime.executable.executable import Executable, Int32, StepBatch, StepInterface
from optc.runtime.executable.kv_layout import block_size_for

#: Rows whose steps are measured; decode with drafts has few more.
_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
#: Tokens before the measured rows.
_CONTEXT = 64
#: Between the tokens of rows: rows of one token would choose the same experts, and cost too little.
_STRIDE = 7919
#: Rounds, and how many there are however long they take.
_ROUNDS, _LEAST_ROUNDS = 24, 3
#: Steps of more rows hardly decide on drafts and take most of the time: they have fewer rounds.
_LARGE, _LARGE_ROUNDS = 16, 2
#: No new round begins after so many seconds.
_LIMIT_S = 1.0


@dataclass(frozen=True)
class RowCosts:
    """Seconds of a step, linear between the measured ones.

    Attributes:
        rows: Ascending.
        seconds: Of a step of so many rows; ascending too.
    """

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    _tables: dict[int, list[float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def at(self, rows: int) -> float:
        """Seconds of a step of ``rows`` rows; beyond the last measured one as between the last
        two. 0 for no rows."""
        if rows < 1:
            return 0.0
        if len(self.rows) == 1:
            return self.seconds[0] * rows / self.rows[0]
        right = min(max(1, bisect_right(self.rows, rows)), len(self.rows) - 1)
        x, y = self.rows[right - 1 : right + 1], self.seconds[right - 1 : right + 1]
        return y[0] + (y[1] - y[0]) * (rows - x[0]) / (x[1] - x[0])

    def upto(self, rows: int) -> list[float]:
        """`at` of 0 to ``rows`` rows and some more; shared, not to be changed."""
        size = 1 << rows.bit_length()
        table = self._tables.get(size)
        if table is None:
            table = self._tables[size] = [self.at(count) for count in range(size)]
        return table

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` takes."""
        return {"rows": list(self.rows), "seconds": list(self.seconds)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RowCosts:
        """The costs in an object that `to_json` gave.

        Raises:
            ValueError: It is something else.
        """
        rows, seconds = value.get("rows"), value.get("seconds")
        if not isinstance(rows, list) or not isinstance(seconds, list):
            raise ValueError("rows and seconds are no lists")
        if not rows or len(rows) != len(seconds) or sorted(set(rows)) != rows:
            raise ValueError("rows do not ascend, or are not as many as seconds")
        if not all(isinstance(s, float) and s > 0 for s in seconds):
            raise ValueError("seconds are not above 0")
        return cls(tuple(map(int, rows)), tuple(seconds))


def measure_row_costs(
    executable: Executable,
    clock: Callable[[], float] = time.perf_counter,
    *,
    reads: bool = False,
) -> RowCosts:
    """Measure an engine that nobody uses yet; its KV pools are replaced by small ones.

    All rows are with logits, as those that verify drafts, or only the last of them (``reads``), as
    where a draft model reads a prompt.

    The shortest times of rounds in which all numbers of rows take turns, since whatever else the
    machine does only adds to them; about a second, three rounds at least, two of them with large
    numbers. Fewer rows never take longer than more: where they seem to, they were held up.
    """
    spec = executable.spec
    most = min(spec.max_rows, spec.max_logit_rows, spec.max_context - 1)
    context = min(_CONTEXT, spec.max_context - most)
    rows = [count for count in _ROWS if count <= most]
    size = block_size_for(spec, context + most, about=32)
    blocks = -(-(context + most) // size)
    executable.allocate_kv((blocks,) * len(spec.groups), size)
    batches = [_one_sequence(count, context, size, spec) for count in rows]
    if reads:
        batches = [replace(one, logit_rows=one.logit_rows[-1:]) for one in batches]
    times: list[list[float]] = [[] for _ in rows]
    begun = clock()
    for done in range(_ROUNDS + 1):  # the first one warms up
        if done > _LEAST_ROUNDS and clock() - begun > _LIMIT_S:
            break
        for count, batch, seconds in zip(rows, batches, times, strict=True):
            if count > _LARGE and done > _LARGE_ROUNDS:
                break
            started = clock()
            executable.step(batch)
            if done:
                seconds.append(clock() - started)
    shortest = np.array([max(min(seconds), 1e-9) for seconds in times])
    ascending = np.minimum.accumulate(shortest[::-1])[::-1]
    return RowCosts(tuple(rows), tuple(ascending.tolist()))


def _one_sequence(rows: int, context: int, block_size: int, spec: StepInterface) -> StepBatch:
    """``rows`` rows of different tokens behind ``context`` tokens, all with logits."""
    groups = len(spec.groups)
    length = context + rows
    positions = np.arange(context, length, dtype=np.int32)
    blocks = np.arange(-(-length // block_size), dtype=np.int32)
    return StepBatch(
        tokens=(np.arange(rows) * _STRIDE % spec.vocab_size).astype(np.int32),
        positions=positions,
        slot_mapping=_for_groups(positions, groups),
        query_starts=np.array([0, rows], np.int32),
        kv_lengths=np.full((groups, 1), length, np.int32),
        block_tables=_for_groups(blocks[None], groups),
        logit_rows=np.arange(rows, dtype=np.int32),
    )


def _for_groups(array: Int32, groups: int) -> Int32:
    return np.ascontiguousarray(np.broadcast_to(array, (groups, *array.shape)))
