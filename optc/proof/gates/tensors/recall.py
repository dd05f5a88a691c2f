"""Nearest neighbours of embeddings, beside those of a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.artifact.tasks.embedding import EMBEDDINGS

Array = npt.NDArray[Any]
_NEIGHBOURS = 10


@dataclass
class Recall:
    """Share of the reference's nearest neighbours, by cosine, that are an engine's, too."""

    ours: list[Array] = field(default_factory=list)
    theirs: list[Array] = field(default_factory=list)

    def add(self, found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
        """Take the embeddings of one sample [texts, D]."""
        self.ours.append(found[EMBEDDINGS])
        self.theirs.append(wanted[EMBEDDINGS])

    def value(self) -> float | None:
        """The mean share over texts; None where there are too few."""
        both = (self.ours, self.theirs)
        ours, theirs = (np.concatenate(some).astype(np.float64) for some in both)
        count = min(_NEIGHBOURS, len(ours) - 1)
        if count < 1:
            return None
        pairs = zip(_nearest(ours, count), _nearest(theirs, count), strict=True)
        return float(np.mean([len(set(a) & set(b)) / count for a, b in pairs]))


def _nearest(vectors: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.intp]:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300)
    alike = unit @ unit.T
    np.fill_diagonal(alike, -np.inf)  # a text is no neighbour of itself
    found: npt.NDArray[np.intp] = np.argsort(-alike, axis=1, kind="stable")[:, :count]
    return found
