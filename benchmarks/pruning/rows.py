"""The rows of the table: which passes prune, and what they may lose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Passes behind `canonicalize`, as recipes have them.
Entries = tuple[Mapping[str, Mapping[str, Any]], ...]


@dataclass(frozen=True)
class Row:
    """A pruned model.

    Attributes:
        method: What prunes.
        amount: How much.
        passes: Behind `canonicalize`.
        most: The perplexity over the dense model's that is wanted at most; None if none is.
    """

    method: str
    amount: str
    passes: Entries
    most: float | None = None

    @property
    def name(self) -> str:
        """Method and amount."""
        return f"{self.method}, {self.amount}"


#: Options of `prune-weights`.
METHODS: dict[str, dict[str, Any]] = {
    "magnitude": {"method": "magnitude"},
    "Wanda": {"method": "wanda", "sequential": False},
    "Wanda, sequential": {"method": "wanda"},
    "Wanda, fitted": {"method": "wanda", "sequential": False, "refit": True},
    "SparseGPT": {"method": "sparsegpt", "sequential": False},
    "SparseGPT, sequential": {"method": "sparsegpt"},
    "ADMM": {"method": "admm", "sequential": False},
    "ADMM, sequential": {"method": "admm"},
}
AMOUNTS: dict[str, dict[str, Any]] = {
    "50 %": {"sparsity": 0.5},
    "60 %": {"sparsity": 0.6},
    "2:4": {"pattern": "2:4"},
    "4:8": {"pattern": "4:8"},
}
#: Of the best method.
_WANTED = {"50 %": 1.035, "60 %": 1.08, "2:4": 1.11}


def _single_weights() -> list[Row]:
    """Unstructured and N:M, every method with every amount."""
    return [
        Row(
            method,
            amount,
            ({"prune-weights": options | much},),
            _WANTED.get(amount) if method == "ADMM, sequential" else None,
        )
        for method, options in METHODS.items()
        for amount, much in AMOUNTS.items()
    ]


ROWS: list[Row] = [*_single_weights()]
