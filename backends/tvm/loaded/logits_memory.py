"""The memory that steps leave their logits in (`optc.backends.tvm.lowering.given_logits`)."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.runtime.executable.executable import StepInterface

#: Steps after which memory goes back that none of them needed. Taking 8 MB anew is a millisecond.
WINDOW = 256


class LogitsMemory:
    """Room for the most rows of logits that a step may have; pages are taken as they are written.

    A step with many rows (scores of a prompt, many drafts) may be the only one: what the last
    `WINDOW` steps did not need goes back to the system.

    Args:
        spec: Of the engine.
        wrap: Makes a tensor of an array.
    """

    def __init__(self, spec: StepInterface, wrap: Callable[[Any], Any]) -> None:
        self._wrap = wrap
        self._row_bytes = 4 * spec.vocab_size
        size = spec.max_logit_rows * self._row_bytes
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        array = np.frombuffer(self._memory, np.float32)
        self._array: npt.NDArray[np.float32] = array.reshape(-1, spec.vocab_size)
        self._tensors: dict[int, Any] = {}
        self._steps = 0
        self._most = 0  # rows of the largest of these steps
        self._written = 0  # rows whose pages may be there

    def of(self, rows: int) -> Any:
        """The tensor f32 [rows, V] for the next step; its contents are those of the last one."""
        if self._steps == WINDOW:
            self._give_back()
        self._steps += 1
        self._most = max(self._most, rows)
        self._written = max(self._written, rows)
        tensor = self._tensors.get(rows)
        if tensor is None:
            tensor = self._tensors[rows] = self._wrap(self._array[:rows])
        return tensor

    def _give_back(self) -> None:
        """Give back the pages behind the most rows of the last steps."""
        start = -(-self._most * self._row_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        end = self._written * self._row_bytes
        if start < end:
            self._memory.madvise(mmap.MADV_DONTNEED, start, end - start)
        self._written, self._steps, self._most = self._most, 0, 0
