"""The result of an export."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Written:
    """Tensors and what became of them.

    Attributes:
        types: How many tensors of each type.
        losses: Of types whose scales had to be rounded, or that were stored otherwise: the root
            mean square of the errors by that of the engine's weights.
    """

    types: dict[str, int]
    losses: dict[str, float]
