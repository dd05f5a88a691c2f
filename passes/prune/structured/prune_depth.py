"""`prune-depth`: attentions, MLPs or whole layers are taken out, where that costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op
from optc.ir.pipeline.base import Pass, PassReport
from optc.ir.pipeline.phase import Effect
from optc.passes.prune.structured.choose import Costs, Step, choose
from optc.passes.prune.structured.cut import refit
from optc.passes.prune.structured.decisions import Decisions
from optc.passes.prune.structured.influence import influences
from optc.passes.prune.structured.refit import Cut
from optc.passes.prune.structured.sizes import Sizes
from optc.passes.prune.structured.structures import PruneStructures, sizes_facts
from optc.passes.prune.structured.sublayers import (
    ATTENTION,
    MLP,
    SubLayer,
    find_sublayers,
    remove_sublayers,
)
from optc.passes.prune.structured.variants import measure_kl, zero_weight
from optc.runtime.executable.executable import Int32

#: What goes as one: indices of sub-layers.
Unit = tuple[int, ...]
#: Values of ``units``.
_ANY, _LAYERS = "any", "layers"
#: Values of ``choose``.
_KL, _INFLUENCE = "kl", "influence"


@dataclass(frozen=True)
class PruneDepth(PruneStructures):
    """Takes sub-layers out of the residual stream, one after the other; what is left of the model
    is fitted to the unpruned one, layer after layer.

    Which goes is measured on some windows of the text, as things stand: pairs of sub-layers lose
    more together than the sum. An attention takes its keys and values with it. Sub-layers are found
    by dataflow, as terms of the sum that a block is (`structured.sublayers`).

    Attributes:
        units: ``any`` sub-layer alone, attentions (``attention``) or MLPs (``mlp``) alone, or
            whole ``layers``.
        choose: By ``kl`` of the model without each, or by its block ``influence``, one minus the
            cosine of the residual stream before and after it: one run for all (Men et al.,
            ShortGPT, 2024, arXiv:2403.03853).
    """

    name: ClassVar[str] = "prune-depth"
    removes: ClassVar[str] = "layers"
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.REMOVES_WEIGHTS | Effect.MOVES_KV
    added_by: ClassVar[str] = "--draft self:depth"
    before: ClassVar[tuple[str, ...]] = (
        *PruneStructures.before,
        *("prune-width", "prune-heads", "prune-depth"),
    )

    target: str = "0.9x"
    units: str = _ANY
    choose: str = _KL

    def __post_init__(self) -> None:
        """Refuse other options.

        Raises:
            InputError: An option is none that there is.
        """
        super().__post_init__()
        self.check_option("units", (_ANY, ATTENTION, MLP, _LAYERS))
        self.check_option("choose", (_KL, _INFLUENCE))

    def _choose(
        self, model: ir.Model, tokens: Int32 | None, later: Sequence[Pass], report: PassReport
    ) -> dict[ir.Value, Cut]:
        found = find_sublayers(model, report)
        units = self._units(found)
        if not units:
            raise self._nothing("no sub-layer that can be taken out was found", report)
        candidates = {v for unit in units for i in unit for v in _initializers(found[i])}
        sizes = Sizes(model, later, candidates)
        target, most = self._most(sizes)
        attentions = sum(is_op(node, "Attention", domain=DOMAIN) for node in model.graph)

        def counted(gone: Sequence[Unit]) -> Fraction:
            out = [found[index] for unit in gone for index in unit]
            return target.counted(sizes.of(_shapes(out), _keys_of(out)))

        def able(gone: Sequence[Unit]) -> list[Unit]:
            left = [unit for unit in units if unit not in gone]
            spare = attentions - sum(bool(found[i].attentions) for unit in gone for i in unit)
            return [
                unit
                for unit in left
                if spare > sum(bool(found[index].attentions) for index in unit)
            ]

        steps = choose(able, self._costs(model, found, tokens), counted, most)
        gone = [unit for step in steps for unit in step.taken]
        if counted(gone) > most:
            raise self._unmet(target, most, counted(gone))
        out = [found[index] for unit in gone for index in unit]
        report.facts |= sizes_facts(target, sizes, _shapes(out), _keys_of(out))
        report.facts["steps"] = [_step_facts(step, found) for step in steps]
        return {one.writer.initializer: Cut(1, 0) for one in out}

    def _units(self, found: Sequence[SubLayer]) -> list[Unit]:
        if self.units != _LAYERS:
            kinds = (ATTENTION, MLP) if self.units == _ANY else (self.units,)
            return [(index,) for index, one in enumerate(found) if one.kind in kinds]
        blocks: dict[int, list[int]] = {}
        for index, one in enumerate(found):
            blocks.setdefault(one.block, []).append(index)
        whole = {ATTENTION, MLP}
        return [tuple(b) for b in blocks.values() if {found[i].kind for i in b} == whole]

    def _choosing_bytes(self, model: ir.Model) -> int:
        """A variant for each sub-layer that may go."""
        from optc.passes.calibrating.predictions.memory import measuring

        if self.choose == _INFLUENCE:
            return 0
        blocks = sum(is_op(node, "Attention", domain=DOMAIN) for node in model.graph)
        return measuring(model, self._measured_shape, 2 * blocks)

    def _costs(
        self, model: ir.Model, found: Sequence[SubLayer], tokens: Int32 | None
    ) -> Costs[Unit]:
        if tokens is None:
            return lambda gone, able: [0.0] * len(able)
        measured = self._measured(tokens)
        if self.choose == _INFLUENCE:
            own = influences(model, measured, found)
            return lambda gone, able: [
                sum(own[index] for unit in (*gone, one) for index in unit) for one in able
            ]

        def costs(gone: Sequence[Unit], able: Sequence[Unit]) -> Sequence[float]:
            variants = [
                {
                    found[index].writer.initializer: zero_weight(found[index].writer)
                    for unit in (*gone, one)
                    for index in unit
                }
                for one in able
            ]
            return measure_kl(model, measured, variants)

        return costs

    def _apply(self, model: ir.Model, found: Decisions, report: PassReport) -> None:
        out = [
            one
            for one in find_sublayers(model, PassReport())
            if (kept := found.kept.get(one.writer.name)) is not None and not len(kept)
        ]
        remove_sublayers(model, out)
        for one in out:
            report.add(one.kind)
        refit(model, found.weights)


def _initializers(one: SubLayer) -> list[ir.Value]:
    return [linear.initializer for linear in one.linears]


def _shapes(out: Sequence[SubLayer]) -> dict[ir.Value, tuple[int, int]]:
    return {value: (0, 0) for one in out for value in _initializers(one)}


def _keys_of(out: Sequence[SubLayer]) -> dict[ir.Node, int]:
    """KV heads that go with attentions."""
    return {
        node: node.attributes["kv_num_heads"].as_int() for one in out for node in one.attentions
    }


def _step_facts(step: Step[Unit], found: Sequence[SubLayer]) -> dict[str, object]:
    """Names and costs of what could have gone, and what did."""

    def name(unit: Unit) -> list[str]:
        return [found[index].writer.name for index in unit]

    return {
        "taken": [name(unit) for unit in step.taken],
        "cost": [
            [name(unit), float(f"{cost:.4g}")]
            for unit, cost in zip(step.candidates, step.costs, strict=True)
        ],
    }
