"""Memory for the logits of a loaded CUDA engine's steps, and for ranges of attention."""

from __future__ import annotations

from typing import Any

from optc.backends.tvm_cuda.loaded.device import Device
from optc.runtime.executable.executable import StepInterface


class Results:
    """Memory that every step is given (`optc.backends.tvm_cuda.step_memory`). That of the logits
    doubles until it holds the most rows that any step has, and never more than the engine allows.

    Args:
        device: Where it is.
        spec: Of the engine.
        range_values: float32 values that ranges of attention take.
    """

    def __init__(self, device: Device, spec: StepInterface, range_values: int) -> None:
        self._device = device
        self._spec = spec
        self._ranges = device.empty((range_values,), "float32")
        self._logits: Any = None
        self._rows = 0
        self._views: dict[int, tuple[Any, Any]] = {}

    def reserve(self, rows: int) -> bool:
        """Make room for ``rows`` of logits; whether they moved.

        Raises:
            UnavailableError: The device has no memory left.
        """
        if rows <= self._rows:
            return False
        self._rows = min(1 << (rows - 1).bit_length(), self._spec.max_logit_rows)
        self._views.clear()
        self._logits = None  # its memory may be needed for more
        self._logits = self._device.empty((self._rows, self._spec.vocab_size), "float32")
        return True

    def of(self, rows: int) -> tuple[Any, Any]:
        """The step's last arguments: ranges, and logits f32 [rows, V], for which there is room."""
        found = self._views.get(rows)
        if found is None:
            shape = (rows, self._spec.vocab_size)
            found = self._ranges, self._device.view(self._logits, shape, "float32")
            self._views[rows] = found
        return found
