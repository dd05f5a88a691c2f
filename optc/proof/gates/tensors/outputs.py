"""Figures of outputs beside those of a reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import UnsupportedError

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
#: The figure of outputs without any error.
NO_ERROR_DB = 200.0


@dataclass
class OutputFigures:
    """Sums over samples, of which the figures come.

    A row is what lies along the last axis of a float output of two or more axes; with fewer, the
    whole output is one. Values that are not finite count in ``output_error`` alone.
    """

    largest: dict[str, float] = field(default_factory=dict)
    apart: dict[str, float] = field(default_factory=dict)
    signal: float = 0.0
    noise: float = 0.0
    cosines: list[Float64] = field(default_factory=list)
    agreed: int = 0
    rows: int = 0

    def add(self, found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
        """Take the outputs of one sample.

        Raises:
            UnsupportedError: An output has another shape than the reference's.
        """
        for name, expected in wanted.items():
            ours = np.asarray(found[name], np.float64)
            theirs = np.asarray(expected, np.float64)
            if ours.shape != theirs.shape:
                raise UnsupportedError(
                    f"the engine gives the shape {ours.shape}, and the model {theirs.shape}",
                    where=f"output {name}",
                    hint="the file may state wrong shapes: run ONNX's shape inference on it",
                )
            self._add_error(name, ours, theirs)
            if np.asarray(expected).dtype.kind == "f" and theirs.size:
                self._add_rows(ours, theirs)

    def _add_error(self, name: str, ours: Float64, theirs: Float64) -> None:
        finite = np.isfinite(theirs)
        same = np.array_equal(ours[~finite], theirs[~finite], equal_nan=True)
        same = same and bool(np.isfinite(ours[finite]).all())
        distance = np.abs(ours[finite] - theirs[finite]).max(initial=0.0) if same else math.inf
        size = np.abs(theirs[finite]).max(initial=0.0)
        self.apart[name] = max(self.apart.get(name, 0.0), float(distance))
        self.largest[name] = max(self.largest.get(name, 0.0), float(size))

    def _add_rows(self, ours: Float64, theirs: Float64) -> None:
        finite = np.isfinite(ours) & np.isfinite(theirs)
        self.signal += float(np.square(theirs[finite]).sum())
        self.noise += float(np.square(ours[finite] - theirs[finite]).sum())
        shape = (-1, theirs.shape[-1]) if theirs.ndim > 1 else (1, -1)
        a, b = ours.reshape(shape), theirs.reshape(shape)
        if a.shape[1] < 2:
            return
        rows = (np.isfinite(a) & np.isfinite(b)).all(axis=1)
        if not rows.any():
            return
        a, b = a[rows], b[rows]
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        products = (a * b).sum(axis=1)
        equal = (a == b).all(axis=1)  # rows of zeros have no direction
        self.cosines.append(np.where(equal, 1.0, products / np.maximum(norms, 1e-300)))
        self.agreed += int((a.argmax(axis=1) == b.argmax(axis=1)).sum())
        self.rows += len(a)

    def values(self) -> dict[str, float | None]:
        """The figures by the names of `optc.artifact.tasks.tensors`; None where no output has
        rows."""
        errors = [
            0.0 if not apart else apart / max(self.largest[name], 1e-300)
            for name, apart in self.apart.items()
        ]
        cosines = np.concatenate(self.cosines) if self.cosines else None
        return {
            "output_error": max(errors, default=0.0),
            "cosine_mean": None if cosines is None else float(cosines.mean()),
            "cosine_min": None if cosines is None else float(cosines.min()),
            "sqnr_db": self._sqnr(),
            "top1_agreement": self.agreed / self.rows if self.rows else None,
        }

    def _sqnr(self) -> float | None:
        if not self.signal:
            return None
        if not self.noise:
            return NO_ERROR_DB
        return min(NO_ERROR_DB, 10 * math.log10(self.signal / self.noise))
