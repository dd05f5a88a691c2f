"""`prune-width`: neurons of MLPs are taken out, and the layers behind them make up for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.executable.executable import Int32
from optc.passes.prune.structured.channels import NEURONS, Channels, find_channels
from optc.passes.prune.structured.cut import cut_all
from optc.passes.prune.structured.decisions import Decisions
from optc.passes.prune.structured.refit import Cut
from optc.passes.prune.structured.shapes import initializers_of, shapes_without
from optc.passes.prune.structured.sizes import Sizes
from optc.passes.prune.structured.structures import PruneStructures, sizes_facts
from optc.passes.prune.structured.taylor import TAYLOR, Gradients, gradients_bytes, most_important
from optc.pipeline.base import Pass, PassReport
from optc.pipeline.work import Work

#: The other value of ``choose``.
_ACTIVATIONS = "activations"


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
        choose: By what the residual stream loses, from ``activations`` alone; or by what the loss
            of the text does, from its gradients, to second order (``taylor``; `structured.taylor`).
    """

    name: ClassVar[str] = "prune-width"
    removes: ClassVar[str] = "neurons"
    added_by: ClassVar[str] = "--draft self:width"
    before: ClassVar[tuple[str, ...]] = (*PruneStructures.before, "prune-width")

    multiple: int = 64
    choose: str = _ACTIVATIONS

    def __post_init__(self) -> None:
        """Refuse what is no target or no multiple.

        Raises:
            InputError: It is none.
        """
        super().__post_init__()
        self.check_option("choose", (_ACTIVATIONS, TAYLOR))
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
        return self._cuts(model, tokens, list(zip(found, left, strict=True)))

    def _cuts(
        self, model: ir.Model, tokens: Int32 | None, left: Sequence[tuple[Channels, int]]
    ) -> dict[ir.Value, Cut]:
        """What becomes of the readers of channels, of which so many units stay."""
        readers = [(one, linear, n) for one, n in left for linear in one.linears]
        if self.choose == _ACTIVATIONS or tokens is None:
            return {linear.initializer: Cut(one.units, n) for one, linear, n in readers}
        told = Gradients(model, tokens, [one for one, _ in left], fisher=self.refit)
        if self.refit:
            return {
                linear.initializer: Cut(one.units, n, metric=told.metric(linear.output))
                for one, linear, n in readers
            }
        return {
            linear.initializer: Cut(one.units, n, most_important(told.estimates(one), n))
            for one, linear, n in readers
        }

    def _choosing(self, model: ir.Model, report: PassReport) -> Work:
        """Gradients, where they choose."""
        from optc.passes.prune.structured.work import gradients

        return Work() if self.choose == _ACTIVATIONS else gradients(model, self.shape)

    def _choosing_bytes(self, model: ir.Model) -> int:
        """The backward pass, where gradients choose."""
        if self.choose == _ACTIVATIONS:
            return 0
        return gradients_bytes(model, self.shape, find_channels(model, NEURONS, PassReport()))

    def _left(self, channels: Channels, share: Fraction) -> int:
        multiple = gcd(self.multiple, channels.units)
        return max(1, int(share * channels.units / multiple)) * multiple

    def _apply(self, model: ir.Model, found: Decisions, report: PassReport) -> None:
        cut_all(model, find_channels(model, NEURONS, PassReport()), found, report)
