"""Memory of tasks: for the sums of panels, and for weights that a task unpacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import free_workspace, take_workspace


class Rooms:
    """Memory that the compiler allocates in each task of a loop, needed there or not."""

    def take(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A buffer of the task."""
        return tir.alloc_buffer(shape, dtype)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A scope; buffers that are taken in it are not used behind it."""
        yield


class RoomsAsTaken(Rooms):
    """Memory that a task allocates where it takes it, so that those that take none pay nothing."""

    def __init__(self) -> None:
        self._taken: list[Any] = []

    def take(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A buffer of the scope."""
        buffer, pointer = take_workspace(shape, dtype)
        self._taken.append(pointer)
        return buffer

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Give back what was taken in it."""
        before = len(self._taken)
        yield
        while len(self._taken) > before:
            free_workspace(self._taken.pop())
