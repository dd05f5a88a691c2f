"""`allocate-bits`: formats of weights so that the model loses the least within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.experts import refuse_experts
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.reads_text import ReadsText, some_windows
from optc.passes.calibrating.recall import KeptParts
from optc.passes.numerics.gptq.weights import Factors
from optc.passes.numerics.knapsack import Choice, choose, least_size
from optc.passes.numerics.scheme import Scheme
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.budget.amounts import Budget, Footprint
from optc.passes.quantize.budget.footprint import footprint
from optc.passes.quantize.budget.groups import Group, groups_of
from optc.passes.quantize.budget.sensitivity import Rated, Rater, note_hessians
from optc.passes.quantize.layer_schemes import format_text, read_format
from optc.passes.quantize.quantize_weights import QuantizeWeights, quantize_behind
from optc.proof.reference.calibration import calibration_of, find_statistics
from optc.runtime.executable.executable import Int32

#: Ratios of the whole's loss to the sum of its parts' that are as expected.
EXPECTED_RATIO = (0.8, 1.6)
#: Groups of 32 lie a quarter bit above those of 64.
FORMATS = ("2g64", "3g64", "3g32", "4g64", "4g32", "5g64", "6g64", "8")
#: Numbers of bits that are measured, of the formats above: 2, 3 and 4.
MEASURED_FORMATS = 3


@dataclass(frozen=True)
class AllocateBits(ReadsText):
    """Gives each weight a format, and hands them to the ``quantize-weights`` that comes later.

    What a group of weights that read one input loses in a format is measured: the KL of the model
    with that group alone quantized, rounded as ``quantize-weights`` will. Formats of more than 4
    bits, other group sizes, and in large models most layers follow from the error of the layer's
    results, tr(E H Eᵀ), by the ratio that was measured nearby (`budget.estimates`). The formats are
    a knapsack's, the head one of its items. Last, the whole is measured, beside the sum of its
    parts. Weights that ``layer_bits`` of ``quantize-weights`` names keep their formats.

    Attributes:
        budget: ``3.5bpw``: bits of a quantized weight, scales, head and embedding included;
            ``6.5MB``: all weights as they are stored, without padding; ``40tok/s@50GB/s``: what a
            decode step of one sequence of 512 tokens may read on a machine that reads as fast.
        formats: What weights may be stored in, as in ``layer_bits``.
        measured_windows: Of the windows, how many KL is measured on; Hessians take them all.
    """

    name: ClassVar[str] = "allocate-bits"
    pays: ClassVar[str] = (
        "For every size between two formats: 3.75 bits a weight lost .0174 of mean KL where 3 "
        "bits everywhere lost .0238, 4.86 lost .0034 where 4 bits lost .0044 (ADR 0101)."
    )
    phase: ClassVar[Phase] = Phase.FORMATS
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.KEEPS_PARAMETERS
    added_by: ClassVar[str] = "--budget"
    knows_experts: ClassVar[bool] = False
    before: ClassVar[tuple[str, ...]] = (
        *("allocate-bits", "propagate-errors"),
        *("quantize-weights", "quantize-static", "cast-weights"),
    )

    budget: str = "4bpw"
    formats: tuple[str, ...] = FORMATS
    measured_windows: int = 4

    def __post_init__(self) -> None:
        """Refuse what is no budget.

        Raises:
            InputError: It is none, or there are no formats or windows.
        """
        Budget.read(self.budget, f"pass {self.name}")
        if not self.formats or self.measured_windows < 1:
            option = "measured_windows" if self.formats else "formats"
            raise InputError(f"{option} must name at least one", where=f"pass {self.name}")

    def requires(self, model: ir.Model) -> None:
        """As of passes that read a text; and no experts, which are in no budget.

        Raises:
            UnsupportedError: The model has experts.
        """
        super().requires(model)
        refuse_experts(model, f"pass {self.name}")

    def samples(self) -> Sequence[ir.Node]:
        """Layers of all formats."""
        layers = tuple(f"linear={text}" for text in self.formats)
        options = {"bits": 4, "group_size": 32, "symmetric": False, "group_scales": "int"}
        return [
            node
            for one in layers
            for node in QuantizeWeights.from_options(options | {"layer_bits": (one,)}).samples()
        ]

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Hessians, rounding in each format, and variants of the model side by side; Hessians
        stay."""
        from optc.passes.calibrating.predictions.memory import allocating, left_hessians

        measured = TextShape(self.measured_windows, self.window_tokens)
        working = allocating(model, self.shape, measured, self._variants(model))
        return self.text_costs(working, left_hessians(model))

    def _variants(self, model: ir.Model) -> int:
        """The greatest number of variants that are measured."""
        return MEASURED_FORMATS * len(groups_of(model, head=True))

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Choose formats for the ``quantize-weights`` behind it.

        Raises:
            InputError: There is none or it cannot mix formats, the budget cannot be met, or the
                text or the tokenizer cannot be used.
        """
        return self._run(model, context.later, read=True)

    def without_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Choose formats that keep to the budget, as though every weight lost as much."""
        return self._run(model, context.later, read=False)

    def _run(self, model: ir.Model, later: Sequence[Pass], *, read: bool) -> PassReport:
        quantize = quantize_behind(self, later)
        groups = groups_of(model, head=quantize.head)
        schemes = [self.schemes(group, quantize) for group in groups]
        report = PassReport()
        if all(quantize.layer_schemes.of(one) for group in groups for one in group.linears):
            if read and quantize.method == "gptq":
                self._rater(model, quantize, self.tokens(model), KeptParts())  # leaves Hessians
            report.add("given", len(groups))
            return report
        present = footprint(model, groups, quantize, later)
        most = self._most_bits(groups, schemes, present)

        def chosen(rater: Rater | None) -> PassReport:
            self._choose(report, groups, schemes, most, rater, present)
            return report

        if not read:
            return chosen(None)
        tokens = self.tokens(model)
        recall = self.recall(model, tokens, *(one.spec() for one in later))
        parts = recall.parts()
        found = recall.run(
            calibration_of(model), lambda: chosen(self._rater(model, quantize, tokens, parts))
        )
        if parts.found:
            found.facts["resumed_parts"] = parts.found
        return found

    def _choose(
        self,
        report: PassReport,
        groups: Sequence[Group],
        schemes: Sequence[Sequence[Scheme]],
        most: int,
        rater: Rater | None,
        present: Footprint,
    ) -> None:
        """The formats that lose the least in ``most`` bits, put into the report."""
        rated = rater.rate(groups, schemes) if rater else rated_alike(groups, schemes)
        items = [
            [Choice(group.bits(one.scheme), one.kl) for one in own]
            for group, own in zip(groups, rated, strict=True)
        ]
        chosen = [own[i] for own, i in zip(rated, choose(items, most), strict=True)]
        whole = None
        if rater:
            (whole,) = rater.measure([{i: one.scheme for i, one in enumerate(chosen)}], groups)
        self._report(report, groups, chosen, whole, present)

    def schemes(self, group: Group, quantize: QuantizeWeights) -> list[Scheme]:
        """The schemes for a group: the format that ``quantize`` names for it, or all."""
        given = quantize.layer_schemes.of(group.linears[0])
        if given is not None:
            return group.fitting([given])
        base, where = quantize.scheme(quantize.bits), f"pass {self.name}, formats"
        return group.fitting(read_format(text, base, where) for text in self.formats)

    def _most_bits(
        self, groups: Sequence[Group], schemes: Sequence[Sequence[Scheme]], present: Footprint
    ) -> int:
        budget = Budget.read(self.budget, f"pass {self.name}")
        most = budget.most_bits(present)
        least = least_size(
            [[Choice(g.bits(s), 0.0) for s in own] for g, own in zip(groups, schemes, strict=True)]
        )
        if least > most:
            raise InputError(
                f"the budget {self.budget} cannot be met: the smallest formats reach "
                f"{budget.reached(least, present)}",
                where=f"pass {self.name}",
                hint="allow more, or smaller formats",
            )
        return most

    def _rater(
        self, model: ir.Model, quantize: QuantizeWeights, tokens: Int32, parts: KeptParts
    ) -> Rater:
        """With Hessians in the store: those of a calibration, or measured now."""
        store = calibration_of(model)
        groups = groups_of(model, head=quantize.head)
        if not all(find_statistics(store, one.linears[0], INPUT_HESSIAN) for one in groups):
            parts.statistics("hessians", store, lambda: note_hessians(model, tokens, groups, store))
        factors = Factors(store) if quantize.method == "gptq" else None
        return Rater(model, some_windows(tokens, self.measured_windows), store, factors, parts)

    def _report(
        self,
        report: PassReport,
        groups: Sequence[Group],
        chosen: Sequence[Rated],
        whole: float | None,
        present: Footprint,
    ) -> None:
        texts = []
        rows: list[dict[str, Any]] = []
        for group, one in zip(groups, chosen, strict=True):
            text, bits = format_text(one.scheme), group.bits(one.scheme)
            texts += [f"{name}={text}" for name in group.tensors]
            report.add(text)
            row = {"tensors": group.name, "format": text, "bits": bits / group.weights}
            rows.append(row | {"weights": group.weights, "kl": one.kl, "measured": one.measured})
        size = sum(group.bits(one.scheme) for group, one in zip(groups, chosen, strict=True))
        parts = sum(one.kl for one in chosen)
        budget = Budget.read(self.budget, f"pass {self.name}")
        report.settled = {f"{QuantizeWeights.name}.layer_bits": tuple(texts)}
        report.facts = {
            "chosen": "formats",
            "budget": self.budget,
            "reached": budget.reached(size, present),
            "bits_per_weight": (size + present.fixed_bits) / present.weights,
            "kl_sum_of_parts": parts,
            "kl_measured": whole,
            "tensors": rows,
        }
        low, high = EXPECTED_RATIO
        if whole is not None and parts and not low <= whole / parts <= high:
            report.warnings.append(
                f"together the weights lose {whole / parts:.2f} times the sum of what each loses "
                f"alone ({low} to {high} are usual): the choice may not be the best"
            )


def rated_alike(groups: Sequence[Group], schemes: Sequence[Sequence[Scheme]]) -> list[list[Rated]]:
    """Ratings where nothing was measured: a weight's error falls fourfold with each bit."""
    return [
        [Rated(scheme, group.weights * 4.0**-scheme.bits, measured=False) for scheme in own]
        for group, own in zip(groups, schemes, strict=True)
    ]
