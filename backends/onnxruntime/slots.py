"""The slots of a loaded engine: keys and values of each sequence, in one run of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.onnxruntime.memory import Memory
from optc.errors import InputError
from optc.runtime.executable import EngineSpec, Int32

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
        self, spec: EngineSpec, dtype: np.dtype[Any], make: MakeMemory, length: int = 0
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
        """How many slots there are; 0 before `allocate`."""
        return len(self.lengths)

    def copy(self, source: Int32, target: Int32) -> None:
        """Copy K and V of tokens at KV slots ``source`` [n] to ``target`` [n], in order.

        Raises:
            InputError: No slots, or one lies outside of them.
        """
        both = np.stack([source, target])
        if both.size and not (both.min() >= 0 and both.max() < self.count * self.tokens):
            raise InputError(
                f"slots must lie within 0 and {self.count * self.tokens - 1}", where="copy_kv"
            )
        for cache in self.caches:
            array = cache.memory.load()
            for start, stop in _runs(both):
                (old, first), (new, place) = (divmod(int(x), self.tokens) for x in both[:, start])
                n = stop - start
                moved = array[old, :, first : first + n].copy()  # may overlap
                array[new, :, place : place + n] = moved
                self.lengths[new] = max(self.lengths[new], place + n)
            cache.memory.store(array)

    def read(self, slots: Int32) -> npt.NDArray[np.uint8]:
        """Contents [n, bytes] of slots [n] in all layers."""
        return np.concatenate(
            [c.memory.load()[slots].reshape(len(slots), -1).view(np.uint8) for c in self.caches],
            axis=1,
        )

    def write(self, slots: Int32, data: npt.NDArray[np.uint8]) -> None:
        """Replace what `read` gave."""
        start = 0
        for cache in self.caches:
            array = cache.memory.load()
            size = array[0].nbytes
            part = np.ascontiguousarray(data[:, start : start + size]).view(self._dtype)
            array[slots] = part.reshape(len(slots), *array.shape[1:])
            cache.memory.store(array)
            start += size
        self.lengths[slots] = self.tokens

    def release(self) -> None:
        """Drop all slots; their memory goes back to the system."""
        self.caches = []
        self.tokens = 0
        self.lengths = np.zeros(0, np.int64)


def _runs(pairs: Int32) -> Sequence[tuple[int, int]]:
    """[start, stop) of runs in which both rows of ``pairs`` [2, n] ascend by one."""
    if not pairs.shape[1]:
        return []
    breaks = np.flatnonzero((np.diff(pairs, axis=1) != 1).any(axis=0)) + 1
    edges = [0, *breaks.tolist(), pairs.shape[1]]
    return list(pairwise(edges))
