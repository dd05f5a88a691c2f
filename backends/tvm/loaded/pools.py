"""The KV pools of a loaded engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.kv_layout import POOL_TYPES, TILE, check_allocation, pool_shapes
from optc.backends.tvm.loaded.huge_pages import anonymous
from optc.backends.tvm.loaded.input_memory import aligned
from optc.backends.tvm.loaded.tree_paths import scratch_blocks
from optc.errors import InputError
from optc.runtime.executable.executable import Int32, StepInterface


class KVPools:
    """K and V of every layer, in anonymous pages that the system hands out on first write."""

    def __init__(self, spec: StepInterface, wrap: Callable[[npt.NDArray[Any]], Any]) -> None:
        self._spec = spec
        self._wrap = wrap
        self._slots: tuple[int, ...] = ()
        self.block_size = 0
        self.scratch: tuple[range, ...] = ()
        self.tensors: list[Any] = []
        self._blocks: list[npt.NDArray[np.uint8]] = []  # the same memory, [blocks, bytes]

    def allocate(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Replace all pools by zeroed ones. Behind their blocks lie those in ``scratch``, by KV
        group, for the paths of trees.

        Raises:
            InputError: The block size or the number of groups does not fit the engine.
        """
        check_allocation(self._spec, blocks_per_group, block_size)
        self.release()
        self._slots = tuple(count * block_size for count in blocks_per_group)
        self.block_size = block_size
        self.scratch = scratch_blocks(self._spec, blocks_per_group)
        for layer in self._spec.layers:
            tiles = self.scratch[layer.group].stop * block_size // TILE
            for shape in pool_shapes(tiles, layer):
                pool = pages(shape, POOL_TYPES[layer.dtype].element)
                self.tensors.append(self._wrap(pool))
                rows = pool.reshape(-1).view(np.uint8)  # a block is whole tiles
                self._blocks.append(rows.reshape(self.scratch[layer.group].stop, -1))

    def share(self, owner: KVPools, layers: Sequence[int]) -> None:
        """Use the pools of these layers of ``owner`` in place of the engine's own, which are
        released. Trees need blocks that are not shared: there are none.

        Raises:
            InputError: ``owner`` has no pools.
        """
        if not owner.tensors:
            raise InputError("the target has no KV pools", where="share_kv")
        self.release()
        self.block_size = owner.block_size
        groups = [owner._spec.layers[layers[group.layers[0]]].group for group in self._spec.groups]
        self._slots = tuple(owner._slots[group] for group in groups)
        self.scratch = tuple(range(0) for _ in groups)
        for layer in layers:
            self.tensors += owner.tensors[2 * layer : 2 * layer + 2]
            self._blocks += owner._blocks[2 * layer : 2 * layer + 2]

    def of_group(self, group: int) -> list[Any]:
        """K and V tensors of the group's layers, in order of the layers."""
        layers = self._spec.groups[group].layers
        return [tensor for i in layers for tensor in self.tensors[2 * i : 2 * i + 2]]

    def read(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        """Contents [n, bytes] of blocks [n] in all layers of a group, layer after layer."""
        return np.concatenate([pool[blocks] for pool in self._group_blocks(group)], axis=1)

    def write(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        """Replace what `read` gave."""
        start = 0
        for pool in self._group_blocks(group):
            pool[blocks] = data[:, start : start + pool.shape[1]]
            start += pool.shape[1]

    def _group_blocks(self, group: int) -> list[npt.NDArray[np.uint8]]:
        layers = self._spec.groups[group].layers
        return [pool for i in layers for pool in self._blocks[2 * i : 2 * i + 2]]

    def check_slots(self, group: int, source: Int32, target: Int32) -> tuple[Int32, Int32]:
        """Aligned copies of slot lists.

        Raises:
            InputError: No pools, lists of different lengths, or a slot outside of the pools.
        """
        if not self.tensors:
            raise InputError("no KV pools: call allocate_kv first", where="copy_kv")
        limit = self._slots[group]
        both = np.stack([source, target])
        if both.size and not (both.min() >= 0 and both.max() < limit):
            raise InputError(f"slots must lie within 0 and {limit - 1}", where="copy_kv")
        copies = aligned(source.size), aligned(target.size)
        for copy, slots in zip(copies, (source, target), strict=True):
            copy[:] = slots
        return copies

    def release(self) -> None:
        """Drop all pools; their memory goes back to the system."""
        self.tensors.clear()
        self._blocks.clear()
        self._slots = ()


def pages(shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """A zeroed array in anonymous huge pages, which the system hands out on first write."""
    count = int(np.prod(shape, dtype=np.int64))
    memory = anonymous(count * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, np.dtype(dtype)).reshape(shape)
