"""The KV pools of a loaded CUDA engine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.backends.tvm.kv_layout import POOL_TYPES, TILE, check_allocation, pool_shapes
from optc.backends.tvm.loaded.tree_paths import scratch_blocks
from optc.backends.tvm_cuda.loaded.device import Device
from optc.errors import InputError, UnavailableError
from optc.runtime.executable.executable import Int32, LayerKV, StepInterface


class DevicePools:
    """K and V of every layer in device memory; their layout is the CPU's."""

    def __init__(self, spec: StepInterface, device: Device) -> None:
        self._spec = spec
        self._device = device
        self._slots: tuple[int, ...] = ()
        self.scratch: tuple[range, ...] = ()
        self._block_bytes: list[int] = []  # of each pool
        self.tensors: list[Any] = []

    def allocate(self, blocks_per_group: tuple[int, ...], block_size: int) -> None:
        """Replace all pools; what they hold is undefined. Behind their blocks lie those in
        ``scratch``, by KV group, for the paths of trees.

        Raises:
            InputError: The block size or the number of groups does not fit the engine.
            UnavailableError: They do not fit the device; there are no pools then.
        """
        check_allocation(self._spec, blocks_per_group, block_size)
        self.release()
        self._slots = tuple(count * block_size for count in blocks_per_group)
        self.scratch = scratch_blocks(self._spec, blocks_per_group)
        try:
            for layer in self._spec.layers:
                self._allocate_layer(layer, block_size)
        except UnavailableError:
            self.release()
            raise

    def _allocate_layer(self, layer: LayerKV, block_size: int) -> None:
        kind = POOL_TYPES[layer.dtype]
        tiles = self.scratch[layer.group].stop * block_size // TILE
        for shape in pool_shapes(tiles, layer):
            self.tensors.append(self._device.empty(shape, kind.element))
            tile = math.prod(shape[1:]) * np.dtype(kind.element).itemsize
            self._block_bytes.append(tile * (block_size // TILE))

    def of_group(self, group: int) -> list[Any]:
        """K and V tensors of the group's layers, in order of the layers."""
        return [self.tensors[i] for i in self._indices(group)]

    def read(self, group: int, blocks: Int32) -> npt.NDArray[np.uint8]:
        """Contents [n, bytes] of blocks [n] in all layers of a group, layer after layer."""
        width = sum(self._block_bytes[i] for i in self._indices(group))
        data = np.empty((len(blocks), width), np.uint8)
        for row, block in zip(data, blocks, strict=True):
            for view, part in self._parts(group, int(block), row):
                self._device.download(view, part)
        return data

    def write(self, group: int, blocks: Int32, data: npt.NDArray[np.uint8]) -> None:
        """Replace what `read` gave."""
        for row, block in zip(np.ascontiguousarray(data), blocks, strict=True):
            for view, part in self._parts(group, int(block), row):
                self._device.upload(part, view)

    def check_slots(self, group: int, source: Int32, target: Int32) -> None:
        """Check lists of slots.

        Raises:
            InputError: No pools, or a slot outside of them.
        """
        if not self.tensors:
            raise InputError("no KV pools: call allocate_kv first", where="copy_kv")
        limit = self._slots[group]
        both = np.stack([source, target])
        if both.size and not (both.min() >= 0 and both.max() < limit):
            raise InputError(f"slots must lie within 0 and {limit - 1}", where="copy_kv")

    def release(self) -> None:
        """Drop all pools; their memory goes back to the device."""
        self.tensors.clear()
        self._block_bytes.clear()
        self._slots = ()

    def _indices(self, group: int) -> list[int]:
        return [i for layer in self._spec.groups[group].layers for i in (2 * layer, 2 * layer + 1)]

    def _parts(
        self, group: int, block: int, row: npt.NDArray[np.uint8]
    ) -> Iterator[tuple[Any, npt.NDArray[np.uint8]]]:
        """A block's memory in each pool, and its place in ``row``."""
        start = 0
        for i in self._indices(group):
            size = self._block_bytes[i]
            yield (
                self._device.bytes_of(self.tensors[i], block * size, size),
                row[start : start + size],
            )
            start += size
