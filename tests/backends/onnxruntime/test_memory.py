"""What moves when keys and values are copied, read and written: what was asked for."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import numpy as np
import pytest

from optc.backends.onnxruntime.memory import DeviceMemory, HostMemory
from optc.backends.onnxruntime.pages import PagedExecutable
from optc.backends.onnxruntime.slots import MakeMemory, Slots
from optc.errors import InputError
from optc.runtime.executable.executable import Int32, KVGroup, LayerKV, StepInterface
from tests.backends.onnxruntime.counting_device import CountingDevice

#: Two layers; the second has other widths, which pages do not.
LAYERS = {
    "slots": (LayerKV(0, 3, 4, 6, "float16"), LayerKV(0, 2, 8, 2, "float16")),
    "pages": (LayerKV(0, 3, 4, 4, "float16"), LayerKV(0, 2, 8, 8, "float16")),
}
BLOCK = 8


class Kv:
    """Slots or pages of an engine without a model, and a model of what they hold."""

    def __init__(self, layout: str, make: MakeMemory, count: int) -> None:
        layers = LAYERS[layout]
        spec = StepInterface(
            8, 64, 8, 8, 8, BLOCK, False, (KVGroup(0, (0, 1)),), layers, kv_layout=layout
        )
        rng = np.random.default_rng(0)
        self.count, self._layout = count, layout
        if layout == "slots":
            self._slots = Slots(spec, np.dtype(np.float16), make)
            self._slots.allocate((count,), BLOCK)
        else:
            session = type("Session", (), {"get_inputs": lambda _: []})()
            self._pages = PagedExecutable(session, spec, make)
            self._pages.allocate_kv((count,), BLOCK)
        everything = np.arange(count, dtype=np.int32)
        assert not self.read(everything).any()
        self.data = rng.integers(0, 256, self.read(everything).shape).astype(np.uint8)
        self.write(everything, self.data)
        self.sizes = [kv.kv_heads * w * 2 for kv in layers for w in (kv.key_dim, kv.value_dim)]
        self.token_bytes = sum(self.sizes)

    def read(self, blocks: Int32) -> Any:
        if self._layout == "slots":
            return self._slots.read(blocks)
        return self._pages.read_blocks(0, blocks)

    def write(self, blocks: Int32, data: Any) -> None:
        if self._layout == "slots":
            self._slots.write(blocks, data)
        else:
            self._pages.write_blocks(0, blocks, data)

    def copy(self, sources: Int32, targets: Int32) -> None:
        """Copy, and the same in `data`, token by token."""
        if self._layout == "slots":
            self._slots.copy(sources, targets)
        else:
            self._pages.copy_kv(0, sources, targets)
        start = 0
        for layer in LAYERS[self._layout]:
            for width in (layer.key_dim * 2, layer.value_dim * 2):
                # slots have a row more, and heads outside of tokens
                rows, lanes = (9, layer.kv_heads) if self._layout == "slots" else (BLOCK, 1)
                row = width if self._layout == "slots" else width * layer.kv_heads
                part = self.data[:, start : start + lanes * rows * row]
                view = part.reshape(self.count, lanes, rows, row)
                for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
                    (old, first), (new, place) = divmod(source, BLOCK), divmod(target, BLOCK)
                    view[new, :, place] = view[old, :, first]
                self.data[:, start : start + lanes * rows * row] = view.reshape(self.count, -1)
                start += lanes * rows * row


def made(layout: str, count: int = 5, device: CountingDevice | None = None) -> Kv:
    make = HostMemory if device is None else partial(DeviceMemory, device, "cuda")
    return Kv(layout, make, count)


def pairs(rng: np.random.Generator, limit: int) -> tuple[Int32, Int32]:
    """Tokens and where they go, in runs, apart from each other, or moved on within a run."""
    if rng.integers(2):
        size = int(rng.integers(2, 12))
        source = int(rng.integers(3, limit - size))
        sources = np.arange(source, source + size)
        return sources.astype(np.int32), (sources - rng.integers(1, 4)).astype(np.int32)
    tokens = rng.permutation(limit // 4)[:6]
    runs = (tokens[:, None] * 4 + np.arange(rng.integers(1, 5))).astype(np.int32)
    return runs[:3].ravel(), runs[3:].ravel()


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("layout", ["slots", "pages"])
def test_only_what_was_asked_for_changes(layout: str, where: str) -> None:
    kv = made(layout, device=CountingDevice() if where == "device" else None)
    rng, everything = np.random.default_rng(1), np.arange(kv.count, dtype=np.int32)
    for _ in range(40):
        blocks = rng.permutation(kv.count)[: rng.integers(0, 4)].astype(np.int32)
        np.testing.assert_array_equal(kv.read(blocks), kv.data[blocks])
        kv.data[blocks] = rng.integers(0, 256, kv.data[blocks].shape)
        kv.write(blocks, kv.data[blocks])
        kv.copy(*pairs(rng, kv.count * BLOCK))
        np.testing.assert_array_equal(kv.read(everything), kv.data)


@pytest.mark.parametrize("layout", ["slots", "pages"])
def test_bytes_grow_with_what_is_asked_for_and_not_with_the_pool(layout: str) -> None:
    for count in (4, 64):
        device = CountingDevice()
        kv = made(layout, count, device)
        block = kv.data.shape[1]
        for blocks in ([1], [3, 0, 2]):
            device.up = device.down = device.across = 0
            data = kv.read(np.array(blocks, np.int32))
            assert (device.up, device.down, device.across) == (0, len(blocks) * block, 0)
            kv.write(np.array(blocks, np.int32), data)
            assert (device.up, device.across) == (len(blocks) * block, 0)
        device.up = device.down = 0
        kv.copy(np.array([1, 2, 20], np.int32), np.array([9, 10, 27], np.int32))
        assert (device.up, device.down, device.across) == (0, 0, 3 * kv.token_bytes)


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("layout", ["slots", "pages"])
def test_what_lies_outside_is_refused(layout: str, where: str) -> None:
    kv = made(layout, device=CountingDevice() if where == "device" else None)
    for block in (-1, 5):
        with pytest.raises(InputError, match="read_blocks: blocks must lie within 0 and 4"):
            kv.read(np.array([0, block], np.int32))
        with pytest.raises(InputError, match="write_blocks: blocks must lie within 0 and 4"):
            kv.write(np.array([block], np.int32), kv.data[:1])
        with pytest.raises(InputError, match="copy_kv: slots must lie within 0 and 39"):
            kv.copy(np.array([0], np.int32), np.array([block * BLOCK], np.int32))


@pytest.mark.parametrize("layout", ["slots", "pages"])
def test_a_device_has_its_memory_back(layout: str) -> None:
    device = CountingDevice()
    kv = made(layout, device=device)
    assert len(device.taken) == 4
    del kv
    gc.collect()
    assert not device.taken
