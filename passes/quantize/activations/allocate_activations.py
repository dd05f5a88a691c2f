"""`allocate-activations`: which layers read 16 bits, so that prompts take as long as allowed."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.calibrating.estimates import nearest_alike, runs_within
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.reads_text import ReadsText, some_windows
from optc.passes.calibrating.recall import KeptParts, name_of
from optc.passes.numerics.knapsack import Choice, choose
from optc.passes.quantize.budget.groups import Group, groups_of
from optc.passes.quantize.budget.sensitivity import MOST_MACS, costs_of
from optc.passes.quantize.quantize_weights import QuantizeWeights, quantize_behind
from optc.passes.quantize.rotate.readers import kept_grids
from optc.proof.reference.calibration import calibration_of
from optc.runtime.executable.executable import Int32

#: Choices that are measured at once, after which their figures are kept.
_TOGETHER = 32


@dataclass(frozen=True)
class AllocateActivations(ReadsText):
    """Chooses the layers that read 16 bits, for the ``quantize-weights`` that comes later.

    Layers of 16 bits multiply twice as much: prompts take longer, steps that wait for weights do
    not. What the input of a group of layers loses by 8 bits is measured: the KL of the model with
    that input alone rounded, weights as they are; in large models some layers stand for others of
    their role. The layers are a knapsack's: the least sum of losses within ``budget``. Last, the
    whole is measured. Where ``activation_layers`` of ``quantize-weights`` names layers, nothing is
    chosen. Layers that stay on the checkpoint's grid and read 16 bits in any case are no choice.

    Attributes:
        budget: Multiply-adds of a prompt's layers, of those with 8 bits everywhere: from 1, which
            is 8 bits everywhere, to 2, which is 16, and for which nothing is measured. The head
            counts nothing: a prompt needs its last token's logits alone.
        measured_windows: Of the windows, how many KL is measured on.
    """

    name: ClassVar[str] = "allocate-activations"
    pays: ClassVar[str] = (
        "With 8 bits of weights: 16 bits of the head and of a tenth of the layers lost .0003 of "
        "mean KL instead of .0008 (ADR 0143)."
    )
    phase: ClassVar[Phase] = Phase.FORMATS
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.KEEPS_PARAMETERS
    before: ClassVar[tuple[str, ...]] = (
        *("allocate-activations", "propagate-errors"),
        *("quantize-weights", "quantize-static", "cast-weights"),
    )

    budget: float = 1.3
    measured_windows: int = 4

    def __post_init__(self) -> None:
        """Refuse what is no budget.

        Raises:
            InputError: It is none, or there are no windows.
        """
        where = f"pass {self.name}"
        if not 1 <= self.budget <= 2:
            problem = f"budget={self.budget:g} is not from 1 (8 bits everywhere) to 2 (16 bits)"
            raise InputError(problem, where=where)
        if self.measured_windows < 1:
            raise InputError("measured_windows must be at least one", where=where)

    def samples(self) -> Sequence[ir.Node]:
        """A layer that reads 16 bits."""
        return QuantizeWeights(activation_bits=16).samples() if self.budget > 1 else ()

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Variants of the model side by side, where any are measured."""
        if not 1 < self.budget < 2:
            return self.text_costs()
        from optc.passes.calibrating.predictions.memory import measuring

        groups = groups_of(model, head=True)
        return self.text_costs(measuring(model, self._measured_shape, len(groups)))

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Choose layers for the ``quantize-weights`` behind it.

        Raises:
            InputError: There is none, or the text or the tokenizer cannot be used.
        """
        return self._run(model, context.later, read=True)

    def without_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Choose layers that keep to the budget, as though every input lost as much."""
        return self._run(model, context.later, read=False)

    def _run(self, model: ir.Model, later: Sequence[Pass], *, read: bool) -> PassReport:
        quantize, report = quantize_behind(self, later), PassReport()
        groups = _free(groups_of(model, head=quantize.head), model, quantize, report)
        if quantize.activation_layers:
            report.add("given", len(quantize.activation_layers))
        elif not self._chooses(later):
            self._settle(report, groups, range(len(groups)) if self.budget == 2 else ())
        elif not read:
            self._settle(report, groups, self._chosen(groups, [1.0] * len(groups)))
        else:
            report = self._measured(model, report, groups, quantize.head)
        return report

    def _measured(
        self, model: ir.Model, report: PassReport, groups: Sequence[Group], head: bool
    ) -> PassReport:
        """Choose by losses that are measured, or were before."""
        tokens = self.tokens(model)
        recall = self.recall(model, tokens, f"head={head}")
        rater = _Rater(model, some_windows(tokens, self.measured_windows), head, recall.parts())

        def measure() -> PassReport:
            self._measure(report, groups, rater)
            return report

        found = recall.run(calibration_of(model), measure)
        if rater.parts.found:
            found.facts["resumed_parts"] = rater.parts.found
        return found

    def _measure(self, report: PassReport, groups: Sequence[Group], rater: _Rater) -> None:
        """Choose by measured losses, and report them."""
        kls, measured = rater.rate(groups)
        wide = self._chosen(groups, kls)
        narrow = [i for i in range(len(groups)) if i not in wide]
        self._settle(report, groups, wide)
        report.facts |= {
            "chosen": "activations",
            "kl_sum_of_8_bits": sum(kls),
            "kl_sum_of_parts": sum(kls[i] for i in narrow),
            "kl_measured": rater.measure([narrow])[0] if narrow else 0.0,
            "tensors": [
                _row(one, 16 if i in wide else 8, kls[i], measured=i in measured)
                for i, one in enumerate(groups)
            ],
        }

    def _chosen(self, groups: Sequence[Group], kls: Sequence[float]) -> list[int]:
        """The groups that read 16 bits, by what each loses by 8."""
        items = [
            [Choice(0, kl), Choice(_cost(one), 0.0)] for one, kl in zip(groups, kls, strict=True)
        ]
        room = (self.budget - 1) * sum(map(_cost, groups))
        return [i for i, place in enumerate(choose(items, round(room))) if place]

    def _chooses(self, later: Sequence[Pass]) -> bool:
        """True if there is anything to choose."""
        quantize = (one for one in later if isinstance(one, QuantizeWeights))
        return 1 < self.budget < 2 and not any(one.activation_layers for one in quantize)

    def _settle(self, report: PassReport, groups: Sequence[Group], wide: Sequence[int]) -> None:
        """Hand the choice on, and state what it costs."""
        option = f"{QuantizeWeights.name}.activation"
        names = tuple(glob.escape(name) for i in wide for name in groups[i].tensors)
        report.settled = {f"{option}_bits": 16 if wide else 8}
        if len(wide) < len(groups):
            report.settled |= {f"{option}_layers": names}
        report.add("16 bits", len(wide))
        report.add("8 bits", len(groups) - len(wide))
        total = sum(map(_cost, groups))
        share = sum(_cost(groups[i]) for i in wide) / max(total, 1)
        report.facts = {"budget": self.budget, "reached": 1 + share}

    @property
    def _measured_shape(self) -> TextShape:
        return TextShape(min(self.measured_windows, self.windows), self.window_tokens)


def _free(
    groups: Sequence[Group], model: ir.Model, quantize: QuantizeWeights, report: PassReport
) -> list[Group]:
    """Those that do not read 16 bits in any case; others are counted."""
    kept = kept_grids(model, quantize) if quantize.given_activation_bits == 16 else set()
    free = [one for one in groups if not {linear.initializer for linear in one.linears} <= kept]
    if len(free) < len(groups):
        report.add("16 bits, on the checkpoint's grid", len(groups) - len(free))
    return free


def _cost(group: Group) -> int:
    """Multiply-adds of a token of a prompt."""
    return 0 if group.is_head else group.weights


def _row(group: Group, bits: int, kl: float, *, measured: bool) -> dict[str, Any]:
    """The report's row for a group; ``kl`` is what 8 bits lose, or would."""
    return {
        "tensors": group.name,
        "bits": bits,
        "weights": group.weights,
        "kl": kl,
        "measured": measured,
    }


@dataclass(frozen=True)
class _Rater:
    """Measures groups of one model over windows of tokens."""

    model: ir.Model
    tokens: Int32
    head: bool
    parts: KeptParts

    def rate(self, groups: Sequence[Group]) -> tuple[list[float], set[int]]:
        """The loss of each group by an input of 8 bits, and the indices of those measured."""
        roles, costs = [group.role for group in groups], costs_of(groups, self.tokens.size)
        chosen, _ = runs_within(roles, costs, 1, MOST_MACS)
        found = dict(zip(chosen, self.measure([[i] for i in chosen]), strict=True))
        alike = (i if i in found else nearest_alike(i, roles, chosen) for i in range(len(groups)))
        return [found[i] for i in alike], set(chosen)

    def measure(self, chosen: Sequence[Sequence[int]]) -> list[float]:
        """The KL with the inputs of some groups rounded, for each choice; some are measured at
        once, and kept."""
        from optc.passes.quantize.activations.rounded_inputs import losses

        found: list[float] = []
        for start in range(0, len(chosen), _TOGETHER):
            some = [list(one) for one in chosen[start : start + _TOGETHER]]
            measure = partial(losses, self.model, self.tokens, some, head=self.head)
            found += self.parts.value(f"kl-{name_of(some)}", measure)
        return found
