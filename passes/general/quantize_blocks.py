"""`quantize-blocks`: weights of products in 8 bits, a scale for each block of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.form import Form
from optc.ir.functions import is_op
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.general.block_rounding import Blocks, Read, by_samples, hessians
from optc.passes.general.block_writer import BlockWriter, Layout, Weight, rows_of, weight_of
from optc.passes.numerics.gptq.factor import factor_of
from optc.proof.reference.tensor_samples import samples_of

#: More products, or results, than an option may name.
_MOST = 4096


@dataclass(frozen=True)
class QuantizeBlocks(Pass):
    """MatMul with a constant weight gets it from ``DequantizeLinear`` in blocks of its inputs, and
    so does the embedding that shares a weight with the head.

    Backends may round the products' inputs too, in the same blocks: ONNX Runtime multiplies
    integers then (docs/onnxruntime.md). For that, inputs are rotated in blocks by a Hadamard
    matrix, and weights with them: outliers of single channels spread over their block, and the
    products stay (Ashkboos et al., QuaRot, 2024, arXiv:2404.00456).

    Attributes:
        group_size: Inputs that share a scale.
        block: Inputs that are rotated together, at most; 0 rotates nothing.
        least_inputs: Products over fewer inputs stay float: rounding them gains nothing.
        float_first: So many products stay float, the first ones: what they lose goes through all
            that follow.
        rescored: In each row of a product with more than 16 outputs for each input, such as a
            vocabulary's, so many of the largest results are computed once more with weights in
            float16, which embeddings read then, too. 0 are none.
        rounding: ``nearest``, or ``gptq``: a weight is rounded input after input, and those behind
            make errors good as the samples show them (Frantar et al., GPTQ, 2023,
            arXiv:2210.17323). Tables that embeddings read, too, are rounded to the nearest, for a
            lookup reads single rows.
    """

    name: ClassVar[str] = "quantize-blocks"
    pays: ClassVar[str] = (
        "For models of speech: weights take 10 bits each, and transcripts stay (ADR 0166)."
    )
    phase: ClassVar[Phase] = Phase.ROUNDING
    effects: ClassVar[Effect] = Effect.READS_SAMPLES
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (BatchedTensors,)

    group_size: int = 16
    block: int = 64
    least_inputs: int = 16
    float_first: int = 0
    rescored: int = 0
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        """Refuse other values.

        Raises:
            InputError: An option has a value that it does not take.
        """
        self.check_option("group_size", (16, 32, 64, 128))
        self.check_option("block", (0, 16, 64))
        self.check_option("rounding", ("nearest", "gptq"))
        self.check_option("float_first", range(_MOST), f"0 to {_MOST - 1}")
        self.check_option("rescored", range(_MOST), f"0 to {_MOST - 1}")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            InputError: Weights are to be rounded by samples, and there are none.
        """
        report, weights = PassReport(), 0
        products = self._products(model.graph, report)
        learned = self.rounding == "gptq" and not context.dry
        rounded = self._by_samples(model, products) if learned else {}
        work = BlockWriter(model.graph, self._layout(), rounded)
        for node, weight in products.items():
            work.rewrite(node, weight)
            report.add("int8 in blocks")
            weights += rows_of(weight).size
        for node in list(model.graph):
            if not is_op(node, "Gather"):
                continue
            if node.inputs[0] in work.halves:
                work.look_up_half(node)
                report.add("embedding float16")
            elif node.inputs[0] in work.shared:
                work.look_up(node)
                report.add("embedding int8 in blocks")
        report.judge_missed(weights + report.missed, "int8")
        remove_unused(model)  # float weights
        return report

    def _products(self, graph: ir.Graph, report: PassReport) -> dict[ir.Node, Weight]:
        """The products that are rounded; the report tells why others are not."""
        found: dict[ir.Node, Weight] = {}
        first = self.float_first
        for node in graph:
            if not is_op(node, "MatMul"):
                continue
            weight = weight_of(node)
            if weight is None:
                report.skip(node, "its second operand is no constant matrix")
                continue
            inputs = rows_of(weight).shape[1]
            if inputs < self.least_inputs:
                report.skip(node, f"it has {inputs} inputs")
            elif first:
                first -= 1
                report.skip(node, "it is one of the first")
            elif inputs % self.group_size:
                reason = f"its {inputs} inputs fill no groups of {self.group_size}"
                report.miss(node, reason, rows_of(weight).size)
            else:
                found[node] = weight
        return found

    def _by_samples(
        self, model: ir.Model, products: Mapping[ir.Node, Weight]
    ) -> dict[ir.Value, Blocks]:
        """Weights, each rounded for the inputs of the first product that reads it."""
        samples, layout = samples_of(model), self._layout()
        if not samples:
            raise InputError("there are no inputs to round with", where=f"pass {self.name}")
        readers: dict[ir.Value, list[Weight]] = {}
        for node, weight in products.items():
            read_by_rows = any(is_op(other, "Gather") for other in weight.value.consumers())
            if (x := node.inputs[0]) is not None and not read_by_rows:
                readers.setdefault(x, []).append(weight)
        widths = {x: rows_of(some[0]).shape[1] for x, some in readers.items()}
        reads = {x: Read(width, layout.block_of(width)) for x, width in widths.items()}
        found: dict[ir.Value, Blocks] = {}
        for x, hessian in hessians(model, reads, samples, self.group_size):
            factor = factor_of(hessian, self.group_size, f"input {x.name}", consume=True)
            for weight in readers[x]:
                if weight.value not in found:
                    rows, name = layout.rotated(rows_of(weight)), str(weight.value.name)
                    found[weight.value] = by_samples(rows, factor, self.group_size, name)
        return found

    def _layout(self) -> Layout:
        return Layout(self.group_size, self.block, self.rescored)
