"""Classes of images, beside those of a reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
_FIRST = 5


@dataclass
class Classes:
    """Counts of images by where the reference's first class stands among an engine's.

    The first output f32[images, classes] counts.
    """

    images: int = 0
    first: int = 0
    among: int = 0

    def add(self, found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
        """Take the outputs of one sample."""
        name = next(iter(wanted))
        ours, best = found[name], wanted[name].argmax(axis=1)
        scores = ours[range(len(best)), best]
        before = (ours > scores[:, None]).sum(axis=1)
        self.images += len(best)
        self.first += int((ours.argmax(axis=1) == best).sum())
        self.among += int((before < _FIRST).sum())

    def values(self) -> dict[str, float | None]:
        """The figures by the names of `optc.artifact.tasks.classification`; None without images."""
        if not self.images:
            return {"class_agreement": None, "class_top5_agreement": None}
        return {
            "class_agreement": self.first / self.images,
            "class_top5_agreement": self.among / self.images,
        }
