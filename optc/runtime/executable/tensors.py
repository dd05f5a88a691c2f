"""The contract of loaded engines that take and give named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

Array = npt.NDArray[Any]


@runtime_checkable
class TensorsExecutable(Protocol):
    """A loaded engine of `optc.runtime.executable.tensors_interface.TensorsInterface`.

    Attributes:
        batch_invariant: An output's row has the same bits whatever other rows are computed with it.
    """

    batch_invariant: bool

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name, whose types and sizes have been checked. Threads may
        call it at the same time."""
        ...

    def close(self) -> None:
        """Free the engine."""
        ...
