"""Values of a run by name, in files: there are more of them than memory holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from optc.proof.reference.submodel import Array
from optc.system.room import save_array

#: Decibels from which on rounding in float32 explains a difference; larger figures say no more.
EXACT_DB = 100.0


class ValueStore:
    """Arrays by name in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Path] = {}

    def put(self, name: str, array: Array) -> None:
        """Keep an array."""
        path = self._files.setdefault(name, self._folder / f"{len(self._files)}.npy")
        save_array(path, array)

    def get(self, name: str, *, by_row: bool) -> Array:
        """The array; ``by_row`` joins all axes but the last: [W, S, N] becomes [W * S, N]."""
        array: Array = np.load(self._files[name])
        return array.reshape(-1, array.shape[-1]) if by_row else array

    def __contains__(self, name: str) -> bool:
        return name in self._files


def sqnr_db(exact: Array, other: Array) -> float:
    """Signal over noise, 10 log10(sum exact² / sum (other - exact)²), within ± `EXACT_DB`.

    Args:
        exact: Any shape.
        other: As many elements in the same order; values that are not finite are all noise.
    """
    signal = exact.astype(np.float64).ravel()
    noise = other.astype(np.float64).ravel() - signal
    if not np.isfinite(noise).all():
        return -EXACT_DB
    tiny = float(np.finfo(np.float64).tiny)
    ratio = float(signal @ signal) / max(float(noise @ noise), tiny)
    return float(np.clip(10 * np.log10(max(ratio, tiny)), -EXACT_DB, EXACT_DB))
