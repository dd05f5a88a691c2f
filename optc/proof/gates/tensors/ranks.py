"""Order of texts by their scores, beside that of a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass
class Ranks:
    """Counts of pairs of texts, and of those that stand in the reference's order (Kendall, 1938).

    The first column of the first output [texts, scores] counts. A sample has the texts of one
    query.
    """

    pairs: int = 0
    agreed: int = 0

    def add(self, found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
        """Take the outputs of one sample; texts of equal scores in the reference have no order."""
        name = next(iter(wanted))
        ours, theirs = (np.sign(_differences(one[name])) for one in (found, wanted))
        ordered = np.triu(theirs != 0, 1)
        self.pairs += int(ordered.sum())
        self.agreed += int((ordered & (ours == theirs)).sum())

    def value(self) -> float | None:
        """Share of pairs in the same order; None where no sample has two texts."""
        return self.agreed / self.pairs if self.pairs else None


def _differences(scores: Array) -> Array:
    column: Array = np.asarray(scores, np.float64).reshape(len(scores), -1)[:, 0]
    return column[:, None] - column[None]
