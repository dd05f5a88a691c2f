"""The pools of keys and values in device memory, a slot for each sequence.

A pool of one layer is [slots, KV heads, slot length, width], so that a call over neighbouring slots
gets one address for all of them, and TensorRT writes new rows in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.executable import KV_TYPES, Int32, StepInterface
from optc.runtime.executable.token_runs import token_runs
from optc.system.hardware.cuda_device import Device


@dataclass(frozen=True)
class Pool:
    """Keys or values of one layer.

    Attributes:
        name: ``k.0``: the engine's tensors are ``past_k.0`` and ``present_k.0``.
        heads: KV heads.
        width: Of a head.
        row_bytes: Of one token and head.
        slot_bytes: Of one slot.
        address: Of slot 0.
    """

    name: str
    heads: int
    width: int
    row_bytes: int
    slot_bytes: int
    address: int


class Slots:
    """All pools of an engine.

    Args:
        device: Where they are.
        spec: The engine's.
        count: Slots.
        length: Tokens that a slot has room for.
    """

    def __init__(self, device: Device, spec: StepInterface, count: int, length: int) -> None:
        self._device = device
        self.count, self.length = count, length
        self.pools: list[Pool] = []
        for layer, kv in enumerate(spec.layers):
            element = int(KV_TYPES[kv.dtype][0])
            for kind, width in (("k", kv.key_dim), ("v", kv.value_dim)):
                slot = kv.kv_heads * length * width * element
                address = device.allocate(count * slot)
                # a token that is not there is masked, not skipped: what it holds must be finite
                device.clear(address, count * slot)
                name = f"{kind}.{layer}"
                self.pools.append(Pool(name, kv.kv_heads, width, width * element, slot, address))

    def copy(self, sources: Int32, targets: Int32, block_size: int) -> None:
        """Copy tokens; a token is ``slot * block_size + place``."""
        for source, target, count in token_runs(sources, targets, block_size):
            for pool in self.pools:
                to, of = (
                    pool.address
                    + (token // block_size) * pool.slot_bytes
                    + (token % block_size) * pool.row_bytes
                    for token in (target, source)
                )
                width, pitch = count * pool.row_bytes, self.length * pool.row_bytes
                self._device.copy_rows(to, of, width, pool.heads, pitch)

    def read(self, slots: Int32) -> npt.NDArray[np.uint8]:
        """Contents [n, bytes] of slots, all layers one after the other."""
        size = sum(pool.slot_bytes for pool in self.pools)
        data = np.empty((len(slots), size), np.uint8)
        for row, start, address, length in self._pieces(slots):
            self._device.download(data[row, start : start + length], address)
        self._device.wait()
        return data

    def write(self, slots: Int32, data: npt.NDArray[np.uint8]) -> None:
        """Replace the contents of slots by what `read` gave."""
        held = np.ascontiguousarray(data)
        for row, start, address, length in self._pieces(slots):
            self._device.upload(address, held[row, start : start + length])
        self._device.wait()

    def _pieces(self, slots: Int32) -> Iterator[tuple[int, int, int, int]]:
        for row, slot in enumerate(slots.tolist()):
            start = 0
            for pool in self.pools:
                yield row, start, pool.address + slot * pool.slot_bytes, pool.slot_bytes
                start += pool.slot_bytes

    def free(self) -> None:
        """Give the memory back."""
        for pool in self.pools:
            self._device.free(pool.address)
        self.pools.clear()
