"""`propagate-errors`: weights corrected for what quantizing earlier layers does to their inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.linear import find_linears, head_of
from optc.ir.pipeline.base import ALONE, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.calibrating.reads_text import ReadsText, some_windows
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.kept_rows import leave
from optc.passes.quantize.propagate.checkpoints import BlockCheckpoints
from optc.passes.quantize.propagate.replace import QuantizeLayers
from optc.passes.quantize.propagate.stages import CorrectedStages
from optc.passes.quantize.quantize_weights import QuantizeWeights, quantize_behind
from optc.proof.reference.calibration import CalibrationStore, calibration_of, weights_of
from optc.proof.reference.streams.gram import hessian_of
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads

#: Windows that tell the Hessian of the head's input, where nothing else is asked of the text.
HEAD_WINDOWS = 4


@dataclass(frozen=True)
class PropagateErrors(ReadsText):
    """Each linear layer is quantized for the inputs that quantized layers before it give it.

    The float32 model runs over a text twice side by side, as it is and with each layer quantized
    by the options of ``quantize-weights``, which must come later: layer after layer, within a block
    too. A layer's weight is corrected for the drift of its inputs and, where its result is added
    to a residual, for the residual's (`propagate.targets`); then it is quantized. The graph stays
    as it is: the quantized rows go into the calibration store, where ``quantize-weights`` finds
    them, as does the Hessian of the head's input.

    Layers with fewer than 16 tokens for each input are left alone and named: a correction from few
    tokens makes the result worse. The head is not corrected. Where all layers stay on the
    checkpoint's own grid, the head's Hessian comes from `HEAD_WINDOWS` of the windows, and where
    the head stays, too, no text is read.

    Attributes:
        strength: Share of the correction, 0 to 1. At 0, layers are rounded for the inputs they get,
            but not corrected.
        products: How linear layers are multiplied, in both runs: ``bfloat16``, added in float32,
            ``float32`` or ``int8``. ``auto`` is bfloat16, where the CPU has instructions for it,
            else float32; the quantized run, and the sums over tokens, are int8 where the CPU has
            instructions for that and weights have at most 4 bits.
        blocks: How many of the model's first blocks; weights of the others, and of the head, are
            rounded plainly. 0 are all. For a look at what a long calibration will give.
    """

    name: ClassVar[str] = "propagate-errors"
    pays: ClassVar[str] = (
        "With four bits and fewer: mean KL of a whole engine .0044 instead of .0051 by the "
        "Hessians of the float model (ADR 0097)."
    )
    phase: ClassVar[Phase] = Phase.CORRECTION
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.KEEPS_PARAMETERS
    before: ClassVar[tuple[str, ...]] = (
        *("propagate-errors", "quantize-weights", "quantize-static", "cast-weights"),
    )

    windows: int = 64
    strength: float = 0.5
    products: str = "auto"
    blocks: int = 0

    def __post_init__(self) -> None:
        """Refuse a strength that is no share, other products, and a negative count.

        Raises:
            InputError: The strength is beyond 0 to 1, or there are no such products or blocks.
        """
        if self.blocks < 0:
            raise InputError(f"blocks={self.blocks} is negative", where=f"pass {self.name}")
        self.check_option("products", ("auto", "bfloat16", "float32", "int8"))
        if not 0 <= self.strength <= 1:
            raise InputError(f"strength={self.strength} is not 0 to 1", where=f"pass {self.name}")

    def _products(self, bits: int) -> tuple[str, str]:
        """The types of the products of linear layers, as they are and with ``bits`` bits."""
        from optc.proof.reference.streams.choice import has_int8, products_for

        if self.products == "int8" and not has_int8():
            raise InputError(
                "products=int8 needs a CPU with AVX512-VNNI",
                where=f"pass {self.name}",
                hint="leave products at auto",
            )
        return products_for(bits) if self.products == "auto" else (self.products, self.products)

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Both streams, one stage, and the sums over one layer's inputs; quantized rows stay."""
        from optc.passes.calibrating.predictions.memory import left_rows
        from optc.passes.calibrating.working_bytes import propagating
        from optc.proof.reference.streams.choice import dtype_of

        usual, _ = self._products(8)
        working = propagating(model, self.shape, dtype_of(usual).itemsize)
        return self.text_costs(working, left_rows(model, 1))

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Quantize the layers of ``model`` for the ``quantize-weights`` behind it.

        Raises:
            InputError: There is none, the text or the tokenizer cannot be used, or the CPU has no
                products of int8.
        """
        quantize = quantize_behind(self, context.later)
        given = _all_given(model, quantize)
        if given is not None and given.count == len(find_linears(model)):
            return given
        tokens, store = self.tokens(model), calibration_of(model)
        if given is not None:
            some = some_windows(tokens, HEAD_WINDOWS)
            recall = self.recall(model, some, quantize.spec(), "head")
            return recall.run(store, lambda: _head_alone(model, some, store, given))
        names = self._products(quantize.bits)
        recall = self.recall(model, tokens, quantize.spec(), *names)
        cache = recall.cache()
        report = PassReport()
        layers = QuantizeLayers(quantize, store, report)
        size = int(tokens.size)
        stages = CorrectedStages(
            layers, store, report, self.strength, size, head_of(model), layers.is_given
        )
        points = None if cache is None else BlockCheckpoints(cache, recall.key, stages)
        report = recall.run(store, lambda: self._run(model, tokens, stages, names, points))
        if points is not None:
            points.clear()
        return report

    def _run(
        self,
        model: ir.Model,
        tokens: Int32,
        stages: CorrectedStages,
        names: tuple[str, str],
        checkpoints: BlockCheckpoints | None,
    ) -> PassReport:
        """Fill the store with quantized rows; the model stays as it is."""
        from optc.proof.reference.streams.choice import run_products
        from optc.proof.reference.two_streams import run_two_streams  # brings ONNX Runtime

        report, store, threads = stages.report, stages.store, usable_threads()
        products = run_products(names, threads)
        run_two_streams(model, tokens, stages, products, threads, self.blocks, checkpoints)
        for linear in find_linears(model):
            if not stages.has(linear):
                leave(store, weights_of(linear))
                report.add("rounded plainly")
        report.facts |= {
            "tokens": int(tokens.size),
            "products": products.original.name,
            "changed_products": products.changed.name,
            "block_sqnr_db": [round(_decibels(noise), 2) for noise in stages.noise],
            "statistics_sha256": store.digest(),
            **stages.adequacy.facts(),
        }
        report.warnings += stages.adequacy.warnings()
        return report


def _head_alone(
    model: ir.Model, tokens: Int32, store: CalibrationStore, report: PassReport
) -> PassReport:
    """Note the Hessian of the head's input, which the layers before it leave as it is."""
    from optc.proof.reference.blockwise import BlockwiseReference

    head, reference = head_of(model), BlockwiseReference(model, usable_threads())
    try:
        if head is not None:
            hessian = hessian_of(reference.run(tokens))
            store.put(weights_of(head), INPUT_HESSIAN, hessian)
            report.add("head")
    finally:
        reference.close()
    report.facts |= {"head_tokens": int(tokens.size), "statistics_sha256": store.digest()}
    return report


def _all_given(model: ir.Model, quantize: QuantizeWeights) -> PassReport | None:
    """A report of layers that all stay as the checkpoint has them, maybe but for the head, so that
    no text has anything to say of them; None where another one does not."""
    report, head = PassReport(facts={"tokens": 0}), head_of(model)
    layers = QuantizeLayers(quantize, calibration_of(model), report)
    for linear in find_linears(model):
        is_head = head is not None and linear.initializer is head.initializer
        if layers.is_given(linear, head=is_head):
            report.add("linear layer as given")
        elif not is_head:
            return None
    return report if report.count else None


def _decibels(noise: float) -> float:
    return -10 * math.log10(noise) if noise else 200.0
