"""The choice to keep the grid of a weight that is quantized already, or to round it again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal

from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import LazyWeight
from optc.passes.numerics.scheme import Scheme

#: Which grids of a checkpoint are kept: all that engines have, those without zero points, or none.
Keep = Literal["keep", "symmetric", "requantize"]


def scheme_of_rows(rows: QuantizedRows) -> Scheme:
    """The grid of quantized rows."""
    return Scheme(rows.bits, rows.group_size, rows.symmetric, rows.integer_scales, rows.float_zeros)


@dataclass
class GivenWeights:
    """Decides for each weight, and remembers those that are rounded for a second time.

    Attributes:
        keep: Which grids are kept.
        again: How many weights were quantized as a label says, and are again, to a scheme.
    """

    keep: Keep = "keep"
    again: Counter[tuple[str, str]] = field(default_factory=Counter)

    def rows(
        self, weight: LazyWeight, scheme: Scheme, name: str, *, table: bool = False
    ) -> QuantizedRows | None:
        """The weight as the checkpoint has it, where that has no more bits than ``scheme``, which
        is what was asked for; else None, and it is to be rounded.

        Args:
            weight: By rows.
            scheme: The grid that it is to have otherwise.
            name: For the parts of the quantized weight.
            table: Rows of it are looked up: no kernel does that with float zero points.
        """
        given = weight.given
        rows = None if given is None else given.rows
        if not isinstance(rows, QuantizedRows) or self.keep == "requantize":
            return None
        if table and rows.float_zeros:
            return None
        wanted = rows.symmetric or self.keep == "keep"
        if not wanted or rows.bits > scheme.bits:
            return None
        return replace(rows, name=name)

    def count(self, weight: LazyWeight, scheme: Scheme) -> None:
        """Note that a weight is rounded, if it was quantized."""
        if weight.given is not None:
            self.again[weight.given.label, scheme.label] += 1

    def warnings(self) -> list[str]:
        """A sentence for each pair of types."""
        return [
            f"{count} weight{'s' * (count > 1)} of the checkpoint in {label} "
            f"{'are' if count > 1 else 'is'} quantized again, to {to}; the gates measure the loss "
            "against the dequantized weights"
            for (label, to), count in sorted(self.again.items())
        ]
