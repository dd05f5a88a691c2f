"""`prune-weights`: weights of linear layers become zero, and the others make up for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.errors import InputError
from optc.ir.experts import refuse_experts
from optc.ir.linear import Linear, find_linears, head_of
from optc.ir.pipeline.base import ALONE, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import Array, LazyWeight
from optc.passes.calibrating.reads_text import ReadsText
from optc.passes.prune.weights.amounts import PATTERNS, Amount, LayerAmounts, amount_of
from optc.passes.prune.weights.kept import find_pruned, set_pruned, statistic_of
from optc.passes.prune.weights.layers import PruneLayers
from optc.passes.prune.weights.masks import mask_of
from optc.passes.prune.weights.methods import CHANGE, CHOOSE, Method
from optc.passes.quantize.propagate.stages import CorrectedStages, by_input
from optc.proof.reference.calibration import CalibrationStore, calibration_of, weights_of
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads

#: Passes that need the layers as this one leaves them, or that would lose what it decided.
LATER = (
    *("trained-weights", "fuse-qkv", "fuse-gate-up", "allocate-bits", "propagate-errors"),
    *("quantize-weights", "quantize-static", "cast-weights"),
)


@dataclass(frozen=True)
class PruneWeights(ReadsText):
    """Weights of linear layers become exactly zero: a share, or all but n of every m inputs.

    The graph stays as it is, and so do embedding and head. Passes that quantize weights keep the
    zeros. Layers that read one input are pruned as one weight.

    With ``sequential``, the float32 model runs over a text twice side by side, as it is and with
    each layer pruned, and methods that change what stays prune each layer's weight as corrected for
    the drift of its inputs and of the residual (`optc.passes.calibrating.targets`). Layers
    with fewer than 16 tokens for each input are not corrected, and named.

    Attributes:
        method: ``magnitude``: the largest weights of a layer stay. ``wanda``: of each row those
            that, times the size of their input, are largest. ``sparsegpt``: one input after the
            other, the rest making up for it. ``admm``: the weights that stay are found together
            with what they become; the least loss, in the longest time.
        sparsity: Share of a weight that becomes zero, 0 to less than 1.
        pattern: ``2:4`` or ``4:8`` in the place of a share: of every 4 inputs of a row 2 stay.
        layer_sparsity: Other ones for some weights, as ``tensor=sparsity`` with ``*`` for any text:
            ``*.mlp.*=0.6``, ``*.o_proj.weight=2:4``; 0 leaves a weight as it is. Of several that
            match, the last one holds.
        sequential: Prune each layer for the inputs that pruned layers give it.
        refit: Fit what stays of a weight by least squares; ``admm`` always does.
    """

    name: ClassVar[str] = "prune-weights"
    phase: ClassVar[Phase] = Phase.SPARSITY
    knows_experts: ClassVar[bool] = False
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.REMOVES_WEIGHTS
    unlike_class: ClassVar[str] = (
        "weights were pruned, and sparse formats of other tools are different"
    )
    before: ClassVar[tuple[str, ...]] = LATER

    method: str = "admm"
    sparsity: float = 0.5
    pattern: str = ""
    layer_sparsity: tuple[str, ...] = ()
    sequential: bool = True
    refit: bool = False
    windows: int = 64

    def __post_init__(self) -> None:
        """Refuse options that mean nothing.

        Raises:
            InputError: An option is out of range, or two contradict each other.
        """
        self.check_option("method", (*CHOOSE, *CHANGE))
        self.check_option("pattern", ("", *PATTERNS))
        if self.pattern and self.sparsity != type(self).sparsity:
            raise InputError(
                f"sparsity={self.sparsity} and pattern={self.pattern} exclude each other",
                where=f"pass {self.name}",
                hint="leave one of them out",
            )
        self.amounts  # noqa: B018 - reads them

    @cached_property
    def amounts(self) -> LayerAmounts:
        """The amount of pruning of each weight."""
        where = f"pass {self.name}"
        default = amount_of(self.sparsity, self.pattern, where)
        return LayerAmounts.read(default, self.layer_sparsity, where)

    def requires(self, model: ir.Model) -> None:
        """It is known whose tokenizer reads the text, if one is read; and no experts.

        Raises:
            InputError: It is not.
            UnsupportedError: The model has experts.
        """
        refuse_experts(model, f"pass {self.name}")
        if self._method.reads_inputs:
            super().requires(model)

    def for_part(self, part: ir.Model) -> PruneWeights:
        """Without sparsities of weights that the part lacks."""
        strange = self.amounts.strange(_names(find_linears(part)))
        known = (text for text in self.layer_sparsity if text.rpartition("=")[0] not in strange)
        return replace(self, layer_sparsity=tuple(known))

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Both streams, and one weight while it is pruned; pruned weights stay."""
        from optc.passes.calibrating.predictions.memory import left_rows
        from optc.passes.prune.weights.memory import pruning
        from optc.proof.reference.streams.choice import dtype_of, products_here

        working = pruning(model, self.shape, self._method, dtype_of(products_here()).itemsize)
        return self.text_costs(working, left_rows(model, np.dtype(np.float32).itemsize))

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Prune ``model``.

        Raises:
            InputError: The text or the tokenizer cannot be used, or no weight is called as an
                option says.
        """
        linears = _body(model)
        self.amounts.check_names(_names(linears))
        store = calibration_of(model)
        if self._method.reads_inputs:
            from optc.proof.reference.streams.choice import products_here

            tokens = self.tokens(model)
            recall = self.recall(model, tokens, products_here())
            report = recall.run(store, lambda: self._by_inputs(model, tokens, store))
        else:
            report = self._by_magnitude(linears, store)
        for linear in linears:
            if (weight := find_pruned(store, linear, self._statistic)) is not None:
                set_pruned(linear, weight)
        return report

    def without_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Prune by magnitudes of a row: as many weights, and no text."""
        report, linears = PassReport(), _body(model)
        self.amounts.check_names(_names(linears))
        for linear in linears:
            amount = self.amounts.of(weights_of(linear)[0])
            if amount.share and amount.fits(linear.weight.rows_shape[1]):
                set_pruned(linear, _by_size(linear, amount))
                report.add(amount.label)
        return report

    @property
    def _method(self) -> Method:
        return Method(self.method, self.refit)

    @property
    def _statistic(self) -> str:
        return statistic_of(self.spec())

    def _layers(self, store: CalibrationStore, report: PassReport) -> PruneLayers:
        sizes = self._method, self.amounts
        return PruneLayers(*sizes, store, self._statistic, report, self.sequential)

    def _by_magnitude(self, linears: Sequence[Linear], store: CalibrationStore) -> PassReport:
        report = PassReport()
        layers = self._layers(store, report)
        for readers in by_input(linears).values():
            layers(readers, None, {})
        report.facts = layers.facts()
        report.judge_missed(layers.weights + report.missed, "pruned")
        return report

    def _by_inputs(self, model: ir.Model, tokens: Int32, store: CalibrationStore) -> PassReport:
        """Fill the store with pruned weights; the model stays as it is."""
        from optc.proof.reference.streams.choice import products_here, run_products
        from optc.proof.reference.two_streams import run_two_streams  # brings ONNX Runtime

        report, threads = PassReport(), usable_threads()
        layers = self._layers(store, report)
        strength = 1.0 if self.sequential and self._method.corrects else 0.0
        stages = CorrectedStages(layers, store, report, strength, int(tokens.size))
        products = run_products((products_here(), products_here()), threads)
        run_two_streams(model, tokens, stages, products, threads)
        report.facts = {
            "tokens": int(tokens.size),
            "products": products.original.name,
            **layers.facts(),
            "statistics_sha256": store.digest(),
            **stages.adequacy.facts(),
        }
        report.warnings = stages.adequacy.warnings()
        report.judge_missed(layers.weights + report.missed, "pruned")
        return report


def _body(model: ir.Model) -> list[Linear]:
    """All layers but the head."""
    head = head_of(model)
    linears = find_linears(model)
    return [one for one in linears if head is None or one.initializer is not head.initializer]


def _by_size(linear: Linear, amount: Amount) -> LazyWeight:
    """The weight with the largest of each row."""

    def prune(rows: Array) -> Array:
        wide = np.asarray(rows, np.float32)
        return wide * mask_of(np.abs(wide), amount, by_row=True)

    return linear.weight.map_rows(prune, ir.DataType.FLOAT)


def _names(linears: Sequence[Linear]) -> list[str]:
    return [name for linear in linears for name in weights_of(linear)]
