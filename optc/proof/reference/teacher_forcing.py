"""Drive an engine over given tokens: whole windows, chunks of them, single decode steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optc.errors import InputError
from optc.runtime.executable.executable import (
    Executable,
    Float32,
    Int32,
    SharingExecutable,
    StepBatch,
    StepInterface,
)
from optc.runtime.executable.kv_layout import block_size_for


class SingleSequence:
    """One sequence in an engine's KV pools, fed from position 0 on.

    The pools are allocated for ``capacity`` tokens; block b of a group holds the tokens from
    b * block_size on, so that slots equal positions. `restart` begins a new sequence.

    Args:
        executable: The engine; its KV pools are replaced.
        capacity: Longest sequence in tokens.
        owner: The sequence of another engine whose pools ``executable``, which can
            (`SharingExecutable`), uses instead of its own; of the same capacity.

    Raises:
        InputError: ``capacity`` exceeds the engine's context, or the engines cannot share.
    """

    def __init__(
        self, executable: Executable, capacity: int, owner: SingleSequence | None = None
    ) -> None:
        spec = executable.spec
        if capacity > spec.max_context:
            raise InputError(
                f"{capacity} tokens exceed the engine's context of {spec.max_context}",
                where="gates",
            )
        self._executable = executable
        if owner is not None:
            table = owner._share_with(executable)
        else:
            size = block_size_for(spec, capacity, about=spec.block_multiple)
            table = np.arange(-(-capacity // size), dtype=np.int32)
            executable.allocate_kv((len(table),) * len(spec.groups), size)
        self._tables = np.tile(table, (len(spec.groups), 1, 1))
        self.length = 0

    @property
    def spec(self) -> StepInterface:
        """The engine's limits."""
        return self._executable.spec

    def _share_with(self, other: Executable) -> Int32:
        """Let another engine use the pools; the blocks of a group."""
        if not isinstance(other, SharingExecutable):
            raise InputError("the engine cannot use pools of another", where="gates")
        other.share_kv(self._executable)
        return self._tables[0, 0]

    def restart(self, length: int = 0) -> None:
        """Forget the sequence, but for its first ``length`` tokens."""
        self.length = length

    def feed(self, tokens: Int32, logit_rows: Int32) -> Float32:
        """Append tokens [T] in one step; logits [R, V] of the rows asked for.

        The result is only valid until the next call.
        """
        groups, rows = len(self.spec.groups), len(tokens)
        positions = np.arange(self.length, self.length + rows, dtype=np.int32)
        self.length += rows
        return self._executable.step(
            StepBatch(
                tokens=np.ascontiguousarray(tokens, np.int32),
                positions=positions,
                slot_mapping=np.tile(positions, (groups, 1)),
                query_starts=np.array([0, rows], np.int32),
                kv_lengths=np.full((groups, 1), self.length, np.int32),
                block_tables=self._tables,
                logit_rows=np.ascontiguousarray(logit_rows, np.int32),
            )
        )

    def prefill(self, tokens: Int32) -> Float32:
        """Append tokens [T] in as few steps as the engine allows; logits [1, V] of the last."""
        limit = self.spec.max_rows
        for start in range(0, len(tokens), limit):
            chunk = tokens[start : start + limit]
            logits = self.feed(chunk, np.array([len(chunk) - 1], np.int32))
        return logits


def window_logits(sequence: SingleSequence, window: Int32) -> Iterator[tuple[int, Float32]]:
    """(first row, logits [R, V]) of a window [S] of tokens, in chunks the engine can take."""
    spec = sequence.spec
    size = min(spec.max_rows, spec.max_logit_rows)
    sequence.restart()
    for start in range(0, len(window), size):
        chunk = window[start : start + size]
        yield start, sequence.feed(chunk, np.arange(len(chunk), dtype=np.int32))
