"""A budget as bits that the weights may have, before and after neurons went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from optc.ir.pipeline.base import Pass
from optc.passes.prune.to_budget.places import Places
from optc.passes.quantize.budget.amounts import Budget, Footprint
from optc.passes.quantize.budget.footprint import footprint
from optc.passes.quantize.budget.groups import Group
from optc.passes.quantize.quantize_weights import QuantizeWeights

#: A number of bits a weight is handed on as a whole multiple of one millionth.
_PARTS = 10**6


@dataclass(frozen=True)
class Room:
    """Of one model.

    Attributes:
        budget: The budget.
        present: What the model has beside the weights that are chosen for.
    """

    budget: Budget
    present: Footprint

    @classmethod
    def of(
        cls, model: ir.Model, groups: Sequence[Group], text: str, later: Sequence[Pass], where: str
    ) -> Room:
        """The room that a budget gives a model's ``groups``."""
        quantize = next(one for one in later if isinstance(one, QuantizeWeights))
        return cls(Budget.read(text, where), footprint(model, groups, quantize, later))

    @property
    def most(self) -> int:
        """Bits that the weights may have."""
        return self.budget.most_bits(self.present)

    @property
    def most_pruned(self) -> int:
        """The same for a model to which a rounded budget is handed on (`left`)."""
        lost = self.present.weights // _PARTS + 1
        return self.most - lost if self.budget.kind == "bits" else self.most

    def reached(self, bits: int) -> str:
        """The amount that weights of so many bits reach, in the budget's unit, as text."""
        return self.budget.reached(bits, self.present)

    def left(self, places: Places, counts: Sequence[int]) -> str | None:
        """The budget of what is left: as many bits for fewer weights. None where it stays as it
        is: a size or a speed does not depend on how many weights there are."""
        gone = sum(
            one.weights_each * (one.units - left)
            for (one, _), left in zip(places.channels, counts, strict=True)
        )
        if self.budget.kind != "bits" or not gone:
            return None
        parts = int(self.budget.amount * self.present.weights * _PARTS)
        whole, part = divmod(parts // (self.present.weights - gone), _PARTS)
        return f"{whole}.{part:06d}bpw"
