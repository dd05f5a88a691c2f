"""The slots of a loaded engine: keys and values of each sequence, in one run of memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.onnxruntime.memory import (
    Bytes,
    Memory,
    check_inside,
    read_blocks,
    write_blocks,
)
from optc.errors import InputError
from optc.runtime.executable.executable import Int32, StepInterface
from optc.runtime.executable.token_runs import token_runs

MakeMemory = Callable[[tuple[int, ...], np.dtype[Any]], Memory]


@dataclass(frozen=True)
class Cache:
    """Keys or values of one layer: names of the model's input and output, and memory."""

    past: str
    present: str
    memory: Memory


class Slots:
    """Keys and values of all layers.

    Each slot has room for one token more than a sequence may have: where a slot that lies between
    two that are in use is computed along with them, its row is written behind its tokens.

    Args:
        spec: The engine; all its layers are one KV group.
        dtype: Element type of the model's slots.
        make: Gives zeroed memory of a shape and type.
        length: Tokens that the model's slots have room for; 0 is any number.
    """

    def __init__(
        self, spec: StepInterface, dtype: np.dtype[Any], make: MakeMemory, length: int = 0
    ) -> None:
        self._spec = spec
        self._make = make
        self._dtype = dtype
        self._length = length
        self.caches: list[Cache] = []
        self.tokens = 0
        #: Tokens that each slot may hold: at least as many as it does hold.
        self.lengths: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def allocate(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Replace all slots by zeroed ones of ``block_size`` tokens.

        Raises:
            InputError: Not one group of slots, or longer slots than the engine's context.
        """
        if len(blocks_per_group) != 1 or blocks_per_group[0] < 1:
            raise InputError(
                f"blocks {blocks_per_group} for one group of slots",
                where="allocate_kv",
                hint="one positive number",
            )
        if not 0 < block_size <= self._spec.max_context:
            raise InputError(
                f"slots of {block_size} tokens",
                where="allocate_kv",
                hint=f"1 to {self._spec.max_context}, the engine's context",
            )
        self.release()
        count = blocks_per_group[0]
        for index, layer in enumerate(self._spec.layers):
            for kind, width in (("k", layer.key_dim), ("v", layer.value_dim)):
                shape = (count, layer.kv_heads, self._length or block_size + 1, width)
                memory = self._make(shape, self._dtype)
                self.caches.append(Cache(f"past_{kind}.{index}", f"present_{kind}.{index}", memory))
        self.tokens = block_size
        self.lengths = np.zeros(count, np.int64)

    @property
    def count(self) -> int:
        """The number of slots; 0 before `allocate`."""
        return len(self.lengths)

    def copy(self, source: Int32, target: Int32) -> None:
        """Copy K and V of tokens at KV slots ``source`` [n] to ``target`` [n], in order.

        Raises:
            InputError: No slots, or one lies outside of them.
        """
        both = np.stack([source, target])
        check_inside(both, self.count * self.tokens, "slots", "copy_kv")
        for old, new, n in token_runs(source, target, self.tokens):
            (slot, first), (place, start) = (divmod(token, self.tokens) for token in (old, new))
            for cache in self.caches:
                _copy_run(cache.memory, (slot, first), (place, start), n)
            self.lengths[place] = max(self.lengths[place], start + n)
        for cache in self.caches[:1]:
            cache.memory.wait()

    def read(self, slots: Int32) -> Bytes:
        """Contents [n, bytes] of slots [n] in all layers.

        Raises:
            InputError: There is no such slot.
        """
        return read_blocks(self._memories(), slots)

    def write(self, slots: Int32, data: Bytes) -> None:
        """Replace what `read` gave.

        Raises:
            InputError: There is no such slot.
        """
        write_blocks(self._memories(), slots, data)
        self.lengths[slots] = self.tokens

    def release(self) -> None:
        """Drop all slots; their memory goes back to the system."""
        self.caches = []
        self.tokens = 0
        self.lengths = np.zeros(0, np.int64)

    def _memories(self) -> list[Memory]:
        return [cache.memory for cache in self.caches]


def _copy_run(memory: Memory, source: tuple[int, int], target: tuple[int, int], count: int) -> None:
    """Copy ``count`` tokens, of all heads, from (slot, token) on."""
    _, heads, length, width = memory.shape
    row = width * memory.dtype.itemsize
    pitch = length * row
    of, to = (slot * heads * pitch + first * row for slot, first in (source, target))
    memory.copy_rows(to, of, count * row, heads, pitch)
