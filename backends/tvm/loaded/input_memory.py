"""Memory of a step's inputs: what the host fills, and the tensors that the engine reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from optc.runtime.executable.executable import Int32

#: Kernels assume that buffers start at a multiple of this many bytes.
ALIGNMENT = 64
#: Inputs that the engine reads as float32.
FLOATS = ("features",)
#: Room that an array without a stated limit has at least.
_LEAST = 1024


@dataclass(frozen=True)
class Placed:
    """Inputs of one shape.

    Attributes:
        views: What the host fills, by name; uninitialized.
        tensors: What the engine reads, by name.
        mirror: What has to be copied before the engine reads it, and where; empty where the views
            are what it reads.
        moved: Views that were placed before must not be used any more.
    """

    views: dict[str, Int32]
    tensors: dict[str, Any]
    mirror: tuple[Any, ...] = ()
    moved: bool = False


class InputMemory(Protocol):
    """Places inputs of any shapes in memory that all shapes share."""

    def place(self, shapes: Mapping[str, tuple[int, ...]]) -> Placed:
        """Memory for int32 inputs and the bits of `FLOATS`; what comes first lies at one place,
        whatever the shapes."""
        ...


def aligned(count: int) -> Int32:
    """Zeroed int32 [count] that starts at a multiple of 64 bytes."""
    raw = np.zeros(4 * count + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + 4 * count].view(np.int32)


def grown(needed: int, capacity: int) -> int:
    """The next capacity of memory that has to hold ``needed`` elements."""
    return max(needed, 2 * capacity, _LEAST)


class HostInputs:
    """A buffer for each input, which the engine reads itself.

    Args:
        wrap: Makes a tensor of an array's memory.
        sizes: Elements that inputs have at most, as far as that is known.
    """

    def __init__(self, wrap: Callable[[Any], Any], sizes: Mapping[str, int]) -> None:
        self._wrap = wrap
        self._buffers = {name: aligned(size) for name, size in sizes.items()}

    def place(self, shapes: Mapping[str, tuple[int, ...]]) -> Placed:
        """Views of the buffers."""
        moved = [self._grow(name, int(np.prod(dims))) for name, dims in shapes.items()]
        views = {
            name: self._buffers[name][: int(np.prod(dims))].reshape(dims)
            for name, dims in shapes.items()
        }
        typed = {n: view.view(np.float32) if n in FLOATS else view for n, view in views.items()}
        return Placed(views, {n: self._wrap(view) for n, view in typed.items()}, moved=any(moved))

    def _grow(self, name: str, needed: int) -> bool:
        capacity = self._buffers[name].size if name in self._buffers else 0
        if needed <= capacity:
            return False
        self._buffers[name] = aligned(grown(needed, capacity))
        return True
