"""Timing a loaded engine: whole steps of given shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from optc.proof.bench.batches import ragged_batch
from optc.proof.simulate.step_times import Rows
from optc.runtime.executable.executable import Executable, StepBatch
from optc.runtime.executable.kv_layout import block_size_for
from optc.system.progress import Progress

#: Tokens of a KV block, or the engine's own multiple if that is larger.
_BLOCK_TOKENS = 64
#: How long a shape is repeated in one turn, at least once: without and with the stopwatch.
_TURN_S = 0.015
#: Of the turns of a shape, the one that is taken to be undisturbed: disturbances only ever add, and
#: on a shared machine more than half of the turns can be slow. What they cost on average is for
#: `optc.proof.simulate.fit_service` to say.
_UNDISTURBED = 0.25


def time_steps(
    executable: Executable,
    shapes: Sequence[tuple[Rows, ...]],
    rounds: int,
    progress: Progress,
    clock: Callable[[], float],
) -> list[float]:
    """Undisturbed seconds of each shape, from rounds in which the shapes take turns.

    A turn repeats its step, first for `_TURN_S` to warm caches and clocks up, as steps in service
    follow others like them, then for as long to be timed.
    """
    spec = executable.spec
    longest = max(rows.length for shape in shapes for rows in shape)
    size = block_size_for(spec, longest, about=_BLOCK_TOKENS)
    batches = [ragged_batch(spec, shape, size) for shape in shapes]
    blocks = max(int(batch.block_tables.max()) + 1 for batch in batches)
    executable.allocate_kv((blocks,) * len(spec.groups), size)
    seconds = np.empty((rounds, len(shapes)))
    for turn in range(rounds):
        for index, batch in enumerate(batches):
            progress("step times", turn * len(shapes) + index, rounds * len(shapes))
            _repeat(executable, batch, clock)
            seconds[turn, index] = _repeat(executable, batch, clock)
    progress("step times", rounds * len(shapes), rounds * len(shapes))
    return [float(value) for value in np.quantile(seconds, _UNDISTURBED, axis=0)]


def _repeat(executable: Executable, batch: StepBatch, clock: Callable[[], float]) -> float:
    """Mean seconds of a step that is repeated for `_TURN_S`, at least once."""
    began = now = clock()
    count = 0
    while not count or now - began < _TURN_S:
        executable.step(batch)
        now = clock()
        count += 1
    return (now - began) / count
