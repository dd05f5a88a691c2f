"""Outputs of models of texts without what they have for padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def unpadded(run: Run, padding: str) -> Run:
    """``run`` without what outputs have for tokens where the input ``padding`` is zero; without a
    name of one it stays as it is."""
    if not padding:
        return run

    def kept(sample: Mapping[str, Array]) -> Mapping[str, Array]:
        mask = sample[padding] != 0
        found = run(sample)
        return {
            name: rows[mask] if rows.shape[:2] == mask.shape else rows
            for name, rows in found.items()
        }

    return kept
