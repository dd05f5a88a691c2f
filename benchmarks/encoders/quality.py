"""The nearness of vectors of sentences to the reference's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Neighbours that are counted.
_NEAREST = 10


def quality(found: Array, wanted: Array) -> dict[str, float]:
    """Mean and least cosine [n, D] of each row, and the share of the ten nearest neighbours that
    stay."""
    one, other = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (found, wanted))
    cosines = (one * other).sum(axis=1)
    near = [_neighbours(x) for x in (one, other)]
    kept = [len(set(a) & set(b)) for a, b in zip(*near, strict=True)]
    return {
        "cosine_mean": float(cosines.mean()),
        "cosine_min": float(cosines.min()),
        "recall_at_10": float(np.mean(kept)) / near[0].shape[1],
    }


def _neighbours(unit: Array) -> Array:
    scores = unit @ unit.T
    np.fill_diagonal(scores, -np.inf)
    count = min(_NEAREST, len(unit) - 1)
    return np.argpartition(-scores, count - 1, axis=1)[:, :count]
