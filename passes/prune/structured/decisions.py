"""A pass's decision on cuts, kept in the calibration store beside the weights it fitted.

There it is found for a model of some layers of the one that it was decided for (``--self-draft``),
and by a compile that measures the same again. Of many weights, the store keeps most in a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from optc.ir.weights import Array
from optc.proof.reference.calibration import CalibrationStore

Indices = npt.NDArray[np.intp]
_KEPT, _WEIGHT, _DONE = "kept units", "weight", "decided"


@dataclass(frozen=True)
class Decisions:
    """Of one pass.

    Attributes:
        kept: By the name of a weight that reads channels, the units of them that stay, ascending;
            none if the whole sub-layer that it ends goes.
        weights: Rows [N, K] of weights that were fitted anew, float32, by name.
    """

    kept: Mapping[str, Indices] = field(default_factory=dict)
    weights: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Ledger:
    """The decisions of the pass ``owner`` in a store."""

    store: CalibrationStore
    owner: str

    def keep_units(self, name: str, kept: Indices) -> None:
        """Keep which units the weight ``name`` reads on."""
        self.store.put([name], f"{self.owner}: {_KEPT}", kept.astype(np.int64))

    def keep_weight(self, name: str, weight: Array) -> None:
        """Keep the fitted weight ``name``, rows [N, K]."""
        self.store.put([name], f"{self.owner}: {_WEIGHT}", np.asarray(weight, np.float32))

    def close(self) -> None:
        """Say that all is decided."""
        self.store.put([self.owner], _DONE, np.array(1))

    def find(self, names: Iterable[str]) -> Decisions | None:
        """The decisions about weights ``names``; None if the pass has decided nothing."""
        if self.store.find(self.owner, _DONE) is None:
            return None
        kept, weights = dict[str, Indices](), dict[str, Array]()
        for name in names:
            units = self.store.find(name, f"{self.owner}: {_KEPT}")
            weight = self.store.find(name, f"{self.owner}: {_WEIGHT}")
            if units is not None:
                kept[name] = np.asarray(units, np.intp)
            if weight is not None:
                weights[name] = weight
        return Decisions(kept, weights)
