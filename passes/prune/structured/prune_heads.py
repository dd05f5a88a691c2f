"""`prune-heads`: KV heads are taken out with their query heads, where that costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.pipeline.base import Pass, PassReport
from optc.ir.pipeline.phase import Effect
from optc.passes.prune.structured.channels import KV_GROUPS, Channels, find_channels
from optc.passes.prune.structured.choose import Costs, Step, choose
from optc.passes.prune.structured.cut import cut_all
from optc.passes.prune.structured.decisions import Decisions
from optc.passes.prune.structured.refit import Cut
from optc.passes.prune.structured.shapes import initializers_of, shapes_without
from optc.passes.prune.structured.sizes import Sizes
from optc.passes.prune.structured.structures import PruneStructures, sizes_facts
from optc.passes.prune.structured.variants import ChannelVariants
from optc.runtime.executable.executable import Int32

#: A KV head: index of its attention, and of itself.
Group = tuple[int, int]


@dataclass(frozen=True)
class PruneHeads(PruneStructures):
    """Takes KV heads with the query heads that share them out of attentions, one after the other.

    Layers lose different numbers, each keeps at least one: keys and values of a layer have their
    own number of heads. What is left of the output layers is fitted layer after layer as by
    ``prune-width``. Which goes is measured on some windows of the text, as things stand: by the KL
    of the model without each, the attention's output layer fitted anew by least squares.
    """

    name: ClassVar[str] = "prune-heads"
    removes: ClassVar[str] = "heads"
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.REMOVES_WEIGHTS | Effect.MOVES_KV
    before: ClassVar[tuple[str, ...]] = (*PruneStructures.before, "prune-heads")

    target: str = "0.9x"

    def _choose(
        self, model: ir.Model, tokens: Int32 | None, later: Sequence[Pass], report: PassReport
    ) -> dict[ir.Value, Cut]:
        found = find_channels(model, KV_GROUPS, report)
        if not any(one.units > 1 for one in found):
            raise self._nothing("no KV heads that can be taken out were found", report)
        sizes = Sizes(model, later, initializers_of(found))
        target, most = self._most(sizes)
        attentions = [_attention(one) for one in found]

        def counted(gone: Sequence[Group]) -> Fraction:
            removed = {attentions[i]: sum(g[0] == i for g in gone) for i in range(len(found))}
            return target.counted(sizes.of(_shapes(found, gone), removed))

        def able(gone: Sequence[Group]) -> list[Group]:
            return [
                (index, unit)
                for index, one in enumerate(found)
                if sum(g[0] == index for g in gone) < one.units - 1
                for unit in range(one.units)
                if (index, unit) not in gone
            ]

        steps = choose(able, self._costs(model, found, tokens), counted, most)
        gone = [group for step in steps for group in step.taken]
        if counted(gone) > most:
            raise self._unmet(target, most, counted(gone))
        removed = {attentions[i]: sum(g[0] == i for g in gone) for i in range(len(found))}
        report.facts |= sizes_facts(target, sizes, _shapes(found, gone), removed)
        report.facts["steps"] = [_step_facts(step, found) for step in steps]
        return {
            linear.initializer: Cut(one.units, len(kept), kept)
            for index, one in enumerate(found)
            if len(kept := _kept(index, one, gone)) < one.units
            for linear in one.linears
        }

    def _choosing_bytes(self, model: ir.Model) -> int:
        """Hessians of what reads heads, and a variant for each group that may go."""
        from optc.passes.calibrating.predictions.memory import left_hessians, measuring
        from optc.passes.calibrating.working_bytes import observing

        found = find_channels(model, KV_GROUPS, PassReport())
        groups = sum(one.units for one in found)
        kept = left_hessians(model) if self.refit else 0
        comparing = kept + measuring(model, self._measured_shape, groups)
        return max(comparing, observing(model, self.shape, hessians=self.refit))

    def _costs(
        self, model: ir.Model, found: Sequence[Channels], tokens: Int32 | None
    ) -> Costs[Group]:
        if tokens is None:
            return lambda gone, able: [0.0] * len(able)
        variants = ChannelVariants(model, found, tokens, refit=self.refit)
        measured = self._measured(tokens)

        def costs(gone: Sequence[Group], able: Sequence[Group]) -> Sequence[float]:
            sets = [
                {i: kept for i, one in enumerate(found)
                 if len(kept := _kept(i, one, [*gone, group])) < one.units}
                for group in able
            ]  # fmt: skip
            return variants.measure(measured, sets)

        return costs

    def _apply(self, model: ir.Model, found: Decisions, report: PassReport) -> None:
        cut_all(model, find_channels(model, KV_GROUPS, PassReport()), found, report)


def _attention(channels: Channels) -> ir.Node:
    return next(node for node in channels.heads if is_op(node, "Attention", domain=DOMAIN))


def _kept(
    index: int, channels: Channels, gone: Sequence[Group]
) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    out = {unit for place, unit in gone if place == index}
    return np.array([unit for unit in range(channels.units) if unit not in out], np.intp)


def _shapes(found: Sequence[Channels], gone: Sequence[Group]) -> dict[ir.Value, tuple[int, int]]:
    left = [one.units - sum(g[0] == i for g in gone) for i, one in enumerate(found)]
    return shapes_without(found, left)


def _step_facts(step: Step[Group], found: Sequence[Channels]) -> dict[str, object]:
    """Names and measured KL of what could have gone, and what did."""
    return {
        "taken": [[found[index].name, unit] for index, unit in step.taken],
        "kl": [
            [found[index].name, unit, float(f"{kl:.4g}")]
            for (index, unit), kl in zip(step.candidates, step.costs, strict=True)
        ],
    }
