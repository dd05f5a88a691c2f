"""What room an engine has for adapters; written in the manifest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class AdapterPart:
    """Columns ``start:stop`` of a linear layer's result are the source weight ``name``'s rows."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class AdapterModule:
    """A linear layer [k -> n] of the engine: one source weight, or several that were merged."""

    k: int
    n: int
    parts: tuple[AdapterPart, ...]


@dataclass(frozen=True)
class AdapterSpec:
    """Room for adapters.

    Attributes:
        max: Adapters that can be loaded at once.
        rank: Largest rank.
        modules: The linear layers that take adapters, in the engine's order.
    """

    max: int
    rank: int
    modules: tuple[AdapterModule, ...]


@dataclass(frozen=True)
class ModuleWeights:
    """One adapter's weights of one module, as the engine reads them; rows add ``x @ a @ b``.

    Attributes:
        a: [k, parts * rank], part after part, ranks padded with zeros.
        b: [rank, n], the adapter's scaling included.
    """

    a: Float32
    b: Float32
