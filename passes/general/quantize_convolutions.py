"""`quantize-convolutions`: convolutions in 8-bit integers, with ranges found by running samples."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt
import onnx_ir as ir

from optc.errors import InputError
from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.form import Form
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.general.float_layers import FloatLayers, choose_float_layers
from optc.passes.general.integer_regions import Regions, find_regions
from optc.passes.general.qdq_writer import QdqWriter
from optc.passes.general.value_ranges import METHODS, observe_ranges
from optc.passes.general.weight_rounding import Hessians
from optc.proof.reference.tensor_samples import samples_of

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class QuantizeConvolutions(Pass):
    """Convolutions, products behind them and what lies between compute in integers of 8 bits.

    Written as QuantizeLinear and DequantizeLinear around float operators (QDQ), which ONNX Runtime
    fuses into QLinearConv and its like. Values have one scale and one zero point; weights are
    symmetric, one scale for each output channel; biases are int32 in the product of both scales. A
    Relu or Clip behind an operator goes: rounding saturates where it would cut (Jacob et al.,
    Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
    2018, arXiv:1712.05877). Products that do not lie behind a convolution stay.

    Attributes:
        method: The range of a value: ``min-max`` holds all values seen, ``percentile`` 99.99 % of
            them; ``mse`` has the least squared error, ``entropy`` the least divergence
            (`optc.passes.general.value_ranges`).
        bits: Of weights: 8, or 7, which keeps sums of pairs within 16 bits on CPUs with AVX2 alone,
            where ONNX Runtime's kernels saturate.
        activations: ``u8``, which ONNX Runtime's kernels for x86 are made for, or ``s8``.
        first: ``int8``, or ``float`` for convolutions with no other before them: they have few
            channels, and rounding a model's inputs costs more than rounding any other value.
        sums: ``int8``, or ``float``: what is added up along residual connections is then rounded
            where a convolution reads it, and not once more at each sum.
        rounding: ``gptq`` rounds a weight column by column, so that the columns behind make errors
            good as the samples show them (`optc.passes.general.weight_rounding`); ``nearest``.
        fallback: ``float`` leaves the layers float that lose most, as few as the bounds of the
            recipe's gates need over the samples (`optc.passes.general.float_layers`); ``none``
            rounds all of them.
    """

    name: ClassVar[str] = "quantize-convolutions"
    pays: ClassVar[str] = (
        "On processors with products of int8: resnet20 and resnet56 kept 99.0 and 99.5 % of their "
        "classes at 1.4 times the speed of float32, in 62 and 32 % of the bytes (ADR 0182)."
    )
    phase: ClassVar[Phase] = Phase.ROUNDING
    effects: ClassVar[Effect] = Effect.READS_SAMPLES
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (BatchedTensors,)

    method: str = "mse"
    bits: int = 8
    activations: str = "u8"
    first: str = "int8"
    sums: str = "int8"
    rounding: str = "gptq"
    fallback: str = "float"

    def __post_init__(self) -> None:
        """Refuse other values.

        Raises:
            InputError: An option has a value that it does not take.
        """
        self.check_option("method", tuple(METHODS))
        self.check_option("bits", (7, 8))
        self.check_option("activations", ("u8", "s8"))
        self.check_option("first", ("int8", "float"))
        self.check_option("sums", ("int8", "float"))
        self.check_option("rounding", ("gptq", "nearest"))
        self.check_option("fallback", ("float", "none"))

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            InputError: There are no samples to find ranges with.
        """
        report = PassReport()
        found = self._regions(model)
        for node, reason in found.skipped:
            report.skip(node, reason)
        if not found.products:
            report.skip(None, "there is no convolution with a constant weight")
            return report
        if context.dry:
            return self._counted(report, found)
        samples = samples_of(model)
        if not samples:
            raise InputError("there are no inputs to find ranges with", where=f"pass {self.name}")
        ranges = observe_ranges(model, found.values, samples, self.method)
        hessians = None
        if self.rounding == "gptq":
            inputs = [(node, node.inputs[0]) for node in found.products]
            roots = {node: str(found.root(x).name) for node, x in inputs if x is not None}
            hessians = Hessians.observe(model, roots, samples, ranges)

        def write(changed: ir.Model, left: Collection[str]) -> None:
            regions = self._regions(changed, left)
            QdqWriter(changed.graph, regions, ranges, self.activations, self.bits, hessians).write()
            remove_unused(changed)

        names = [str(node.outputs[0].name) for node in found.products]
        bounds = context.bounds if self.fallback == "float" else {}
        left = choose_float_layers(model, write, names, samples, bounds)
        report.facts = {"values": len(found.values), "rows": sum(map(_rows, samples))}
        self._tell(report, found.products, left)
        self._counted(report, self._regions(model, left.names))
        write(model, left.names)
        return report

    def _counted(self, report: PassReport, found: Regions) -> PassReport:
        for node in found.products:
            report.add(node.op_type)
        report.add("operators between", len(found.others))
        return report

    def _regions(self, model: ir.Model, left: Collection[str] = ()) -> Regions:
        first, sums = self.first == "int8", self.sums == "int8"
        return find_regions(model.graph, first=first, sums=sums, left=left)

    def _tell(self, report: PassReport, products: Sequence[ir.Node], left: FloatLayers) -> None:
        """Say which layers stay float."""
        if not left.held:
            report.warnings.append(
                "the gates do not hold over the samples as soon as one layer is rounded: all are,"
                " and the gates judge what that loses"
            )
        if not left.names:
            return
        report.facts = {**report.facts, "float": list(left.names)}
        named = {str(node.outputs[0].name): node for node in products}
        for name in left.names:
            report.skip(named[name], "it loses most of all when it is rounded")
        report.warnings.append(
            f"{len(left.names)} of {len(products)} layers stay float: they lose most"
        )


def _rows(sample: Mapping[str, Array]) -> int:
    return next((len(array) for array in sample.values() if array.ndim), 1)
