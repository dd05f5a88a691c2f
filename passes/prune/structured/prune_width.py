"""`prune-width`: neurons of MLPs are taken out, and the layers behind them make up for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.pipeline.base import Pass, PassReport
from optc.passes.prune.structured.channels import NEURONS, Channels, find_channels
from optc.passes.prune.structured.cut import cut_all
from optc.passes.prune.structured.decisions import Decisions
from optc.passes.prune.structured.refit import Cut
from optc.passes.prune.structured.shapes import initializers_of, shapes_without
from optc.passes.prune.structured.sizes import Sizes
from optc.passes.prune.structured.structures import PruneStructures, sizes_facts
from optc.runtime.executable.executable import Int32


@dataclass(frozen=True)
class PruneWidth(PruneStructures):
    """Takes the same share of neurons out of every MLP, those whose loss the others make up best.

    Neurons are found by dataflow (`structured.channels`): channels that linear layers give, that
    products and activations keep apart, and that linear layers read. Which go is chosen layer after
    layer, one after the other, by what the residual stream then loses; what is left of the layer
    that reads them is fitted by least squares, to what the unpruned model has in its residual
    stream (`structured.obs`, `structured.refit`).

    Attributes:
        multiple: Each MLP keeps a multiple of so many neurons, for kernels; where this does not
            divide its width, of their greatest common divisor.
    """

    name: ClassVar[str] = "prune-width"
    removes: ClassVar[str] = "neurons"
    added_by: ClassVar[str] = "--draft self:width"
    before: ClassVar[tuple[str, ...]] = (*PruneStructures.before, "prune-width")

    multiple: int = 64

    def __post_init__(self) -> None:
        """Refuse what is no target or no multiple.

        Raises:
            InputError: It is none.
        """
        super().__post_init__()
        if self.multiple < 1:
            raise InputError("multiple must be at least 1", where=f"pass {self.name}")

    def _choose(
        self, model: ir.Model, tokens: Int32 | None, later: Sequence[Pass], report: PassReport
    ) -> dict[ir.Value, Cut]:
        found = self._neurons(model, report)
        sizes = Sizes(model, later, initializers_of(found))
        target, most = self._most(sizes)
        widest = max(one.units // gcd(self.multiple, one.units) for one in found)
        for steps in range(widest - 1, 0, -1):
            left = [self._left(one, Fraction(steps, widest)) for one in found]
            shapes = shapes_without(found, left)
            if target.counted(sizes.of(shapes)) <= most:
                break
        else:
            least = shapes_without(found, [self._left(one, Fraction(0)) for one in found])
            raise self._unmet(target, most, target.counted(sizes.of(least)))
        report.facts |= sizes_facts(target, sizes, shapes, {}) | {
            "neurons": {one.name: [one.units, n] for one, n in zip(found, left, strict=True)}
        }
        return {
            linear.initializer: Cut(one.units, n)
            for one, n in zip(found, left, strict=True)
            for linear in one.linears
        }

    def _left(self, channels: Channels, share: Fraction) -> int:
        multiple = gcd(self.multiple, channels.units)
        return max(1, int(share * channels.units / multiple)) * multiple

    def _apply(self, model: ir.Model, found: Decisions, report: PassReport) -> None:
        cut_all(model, find_channels(model, NEURONS, PassReport()), found, report)
