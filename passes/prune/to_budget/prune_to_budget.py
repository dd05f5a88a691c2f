"""`prune-to-budget`: neurons go where a budget of bits is better spent on the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.errors import InputError
from optc.ir.pipeline.base import Pass, PassReport
from optc.ir.pipeline.phase import Effect
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.numerics.gptq.weights import Factors
from optc.passes.prune.structured.channels import NEURONS, find_channels
from optc.passes.prune.structured.cut import cut_all
from optc.passes.prune.structured.decisions import Decisions
from optc.passes.prune.structured.refit import Cut
from optc.passes.prune.structured.structures import LATER, PruneOnText
from optc.passes.prune.to_budget.given import given_counts
from optc.passes.prune.to_budget.joint import Items, Joint, Structure
from optc.passes.prune.to_budget.losses import Losses
from optc.passes.prune.to_budget.places import Places, places_of, unmeasured
from optc.passes.prune.to_budget.room import Room
from optc.passes.quantize.budget.allocate_bits import AllocateBits, rated_alike
from optc.passes.quantize.budget.groups import Group, groups_of
from optc.passes.quantize.budget.sensitivity import Rater, note_hessians
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import CalibrationStore
from optc.runtime.executable.executable import Int32

#: Times that losses by pruning count in the choices that are measured as a whole.
WEIGHTS = (1.0, 2.0)


@dataclass(frozen=True)
class PruneToBudget(PruneOnText):
    """Takes neurons out of MLPs where the budget of the ``allocate-bits`` behind it then loses
    less, or cannot be met without; else it takes out none.

    What the model loses without a share of one MLP's neurons is measured, and with one weight in
    each format as ``allocate-bits`` does. One knapsack chooses neurons and formats. Its choices and
    that of bits alone are measured as a whole, and the least loss is taken. What is left is fitted
    by least squares (`structured.refit`), and ``allocate-bits`` chooses formats for it anew. Bits a
    weight are those of the model before the pass.

    Attributes:
        shares: Of an MLP's neurons, those that are tried beside all of them.
        multiple: Each MLP keeps a multiple of so many neurons; where this does not divide its
            width, of their greatest common divisor.
        left: ``name=768``: neurons that stay, by the weight that reads them; nothing is chosen
            then. A compile's manifest has them.
    """

    name: ClassVar[str] = "prune-to-budget"
    pays: ClassVar[str] = (
        "Below three bits a weight: at 2.5 a whole engine lost .081 of mean KL instead of .104 "
        "(ADR 0128)."
    )
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.REMOVES_WEIGHTS | Effect.MOVES_KV
    added_by: ClassVar[str] = "--budget BUDGET,prune"
    unlike_class: ClassVar[str] = "channels may have been removed"
    before: ClassVar[tuple[str, ...]] = LATER

    shares: tuple[float, ...] = (0.875, 0.75, 0.625, 0.5, 0.375, 0.25)
    multiple: int = 64
    left: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse shares and multiples that are none.

        Raises:
            InputError: One is none, or there are no windows to measure on.
        """
        super().__post_init__()
        if not self.shares or not all(0 < one < 1 for one in self.shares):
            raise InputError("shares must lie between 0 and 1", where=f"pass {self.name}")
        if self.multiple < 1:
            raise InputError("multiple must be at least 1", where=f"pass {self.name}")

    def _choosing_bytes(self, model: ir.Model) -> int:
        """Hessians, rounding in each format, and variants of the model side by side."""
        from optc.passes.calibrating.predictions.memory import allocating

        measured = TextShape(self.measured_windows, self.window_tokens)
        variants = (3 + len(self.shares)) * len(groups_of(model, head=True))
        return allocating(model, self.shape, measured, variants)

    def _choose(
        self, model: ir.Model, tokens: Int32 | None, later: Sequence[Pass], report: PassReport
    ) -> dict[ir.Value, Cut]:
        found = self._neurons(model, report)
        allocate, quantize = self._later(later)
        groups = groups_of(model, head=quantize.head)
        places = places_of(found, groups, self.shares, self.multiple)
        if self.left:
            counts: Sequence[int] = given_counts(
                self.left, [one for one, _ in places.channels], self.name
            )
        else:
            room = Room.of(model, groups, allocate.budget, later, f"pass {self.name}")
            counts = self._counts(model, tokens, (groups, places, room), later, report)
            report.settled |= {f"{self.name}.left": _texts(places, counts)}
            if (budget := room.left(places, counts)) is not None:
                report.settled[f"{allocate.name}.budget"] = budget
        return {
            linear.initializer: Cut(one.units, left)
            for (one, _), left in zip(places.channels, counts, strict=True)
            if left < one.units
            for linear in one.linears
        }

    def _counts(
        self,
        model: ir.Model,
        tokens: Int32 | None,
        asked: tuple[Sequence[Group], Places, Room],
        later: Sequence[Pass],
        report: PassReport,
    ) -> Sequence[int]:
        """Units that stay, of each structure."""
        (groups, places, room), (allocate, quantize) = asked, self._later(later)
        schemes = [allocate.schemes(group, quantize) for group in groups]
        alike = Items(groups, rated_alike(groups, schemes), unmeasured(places))
        if (least := alike.least()) > room.most:
            raise InputError(
                f"the budget {allocate.budget} cannot be met: the fewest neurons in the smallest "
                f"formats reach {room.reached(least)}",
                where=f"pass {self.name}",
                hint="allow more, smaller shares, or smaller formats",
            )
        if tokens is None:
            return self._first_that_fits(alike, room)
        losses = self._losses(model, tokens, groups, quantize)
        rated = losses.rater.rate(groups, schemes)
        structures, degrees, measured = losses.structures(places)
        items = Items(groups, rated, structures)
        alone = items.alone(room.most)
        choices = [*([alone] if alone else []), *self._pruned(items, room)]
        wholes = losses.wholes(choices, structures, degrees)
        chosen = choices[int(np.argmin(wholes))]
        report.facts |= {
            "budget": allocate.budget,
            "reached": room.reached(chosen.bits),
            "kl_bits_alone": wholes[0] if alone else None,
            "kl_chosen": min(wholes),
            "tried": [
                {"left": list(one.left), "kl_sum_of_parts": one.loss, "kl_measured": kl}
                for one, kl in zip(choices, wholes, strict=True)
            ],
            "structures": [
                _facts(one, left, index in measured)
                for index, (one, left) in enumerate(zip(structures, chosen.left, strict=True))
            ],
        }
        return chosen.left

    def _pruned(self, items: Items, room: Room) -> list[Joint]:
        """Choices with pruning, each once; their budget is a little smaller, for a budget that is
        handed on is rounded down."""
        found = [items.choose(max(items.least(), room.most_pruned), weight) for weight in WEIGHTS]
        unique = {one.left: one for one in reversed(found)}
        whole = tuple(one.channels.units for one in items.structures)
        return [one for left, one in unique.items() if left != whole]

    def _first_that_fits(self, items: Items, room: Room) -> Sequence[int]:
        """As few neurons go as fits, where nothing may be measured."""
        alone = items.alone(room.most)
        chosen = alone or items.choose(max(items.least(), room.most_pruned))
        return chosen.left

    def _losses(
        self, model: ir.Model, tokens: Int32, groups: Sequence[Group], quantize: QuantizeWeights
    ) -> Losses:
        """With Hessians of its own: later passes see another model."""
        store = CalibrationStore()
        note_hessians(model, tokens, groups, store)
        factors = Factors(store) if quantize.method == "gptq" else None
        return Losses(Rater(model, self._measured(tokens), store, factors), groups)

    def _later(self, later: Sequence[Pass]) -> tuple[AllocateBits, QuantizeWeights]:
        """The passes that keep the budget and to its formats.

        Raises:
            InputError: One does not come.
        """
        allocate = next((one for one in later if isinstance(one, AllocateBits)), None)
        quantize = next((one for one in later if isinstance(one, QuantizeWeights)), None)
        if allocate is None or quantize is None:
            missing = QuantizeWeights.name if allocate else AllocateBits.name
            raise InputError(
                f"no {missing} comes after it, whose budget it keeps to"
                if allocate is None
                else f"no {missing} comes after it",
                where=f"pass {self.name}",
                hint="give a --budget, or take prune-width, which has a target of its own",
            )
        return allocate, quantize

    def _apply(self, model: ir.Model, found: Decisions, report: PassReport) -> None:
        channels = find_channels(model, NEURONS, PassReport())
        cut_all(model, channels, found, report)
        if not report.count:
            report.add("kept whole", len(channels))


def _texts(places: Places, counts: Sequence[int]) -> tuple[str, ...]:
    named = zip(places.channels, counts, strict=True)
    return tuple(f"{one.name}={left}" for (one, _), left in named)


def _facts(structure: Structure, left: int, measured: bool) -> dict[str, object]:
    """The choices for a structure, and the one that was made."""
    tried = zip(structure.left, structure.losses, strict=True)
    return {
        "weight": structure.channels.name,
        "left": [structure.channels.units, left],
        "choices": [{"left": n, "kl": float(f"{kl:.4g}")} for n, kl in tried],
        "measured": measured,
    }
