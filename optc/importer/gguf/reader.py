"""The package's reader of GGUF files, over plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader


class PlainReader(GGUFReader):
    """Reads a header in half the time.

    The package slices a `numpy.memmap` for each of the hundred thousand texts of a vocabulary, and
    every slice of one is made a `numpy.memmap` again.
    """

    @property
    def data(self) -> npt.NDArray[Any]:
        """The bytes of the file, mapped."""
        return self._plain

    @data.setter
    def data(self, mapped: npt.NDArray[Any]) -> None:
        self._plain = mapped.view(np.ndarray)
