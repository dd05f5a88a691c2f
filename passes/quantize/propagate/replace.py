"""Quantizes stage after stage while the reference runs, each for the inputs that it then gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.linear import Linear
from optc.ir.weights import LazyWeight
from optc.passes.quantize.affine import dequantize_rows, quantize_rows
from optc.passes.quantize.gptq.factor import Factor, factor_of
from optc.passes.quantize.gptq.rows import gptq_rows
from optc.passes.quantize.propagate.sums import InputSums, input_sums
from optc.passes.quantize.propagate.targets import Correction, Float32, add_of, mix_of
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.scheme import Scheme
from optc.passes.quantize.statistics import CORRECTION_ADD, CORRECTION_MIX, INPUT_HESSIAN
from optc.pipeline.base import PassReport
from optc.reference.calibration import CalibrationStore, weights_of
from optc.reference.partition import Block
from optc.reference.submodel import Array
from optc.reference.two_streams import Pair

#: Tokens for each input of a layer from which on a correction is trusted. On the example model, 4
#: made the result worse than no correction, 32 better by a sixth.
TOKENS_PER_INPUT = 16


@dataclass
class QuantizeStages:
    """Gives each layer its target and the quantized weight (a `Replacer`).

    Attributes:
        quantize: How weights will be quantized once the graph is fused: the same bits come out.
        store: Takes Hessians and corrections.
        report: Counts what was corrected, and says what was not.
        strength: Share of the correction.
        head: Initializer of the head: its weight is not corrected, for embeddings may share it.
        targets: The corrected weights so far.
        noise: For each block, the mean square of what its result lost over that of the result.
    """

    quantize: QuantizeWeights
    store: CalibrationStore
    report: PassReport
    strength: float
    head: Linear | None = None
    targets: dict[ir.Value, LazyWeight] = field(default_factory=dict)
    noise: list[float] = field(default_factory=list)

    def weights(
        self, linears: Sequence[Linear], values: Mapping[ir.Value, Pair]
    ) -> Mapping[ir.Value, Array]:
        """Quantize the layers of one stage."""
        replaced: dict[ir.Value, Array] = {}
        for x, readers in _by_input(linears).items():
            residuals = {
                linear.initializer: value
                for linear in readers
                if (value := _residual(linear, values)) is not None
            }
            order = list(dict.fromkeys(residuals.values()))
            sums = input_sums(values[x], [values[value] for value in order])
            names = [name for linear in readers for name in weights_of(linear)]
            self.store.put(names, INPUT_HESSIAN, sums.hessian)
            self.report.add("linear layer", len(readers))
            self._correct(readers, values[x], sums, residuals, order)
            replaced |= self._quantized(readers, sums)
        return replaced

    def head_input(self, hidden: Pair) -> None:
        """Note the Hessian of the head's input."""
        if self.head is not None:
            self.store.put(weights_of(self.head), INPUT_HESSIAN, input_sums(hidden, []).hessian)
            self.report.add("head")

    def block_done(self, block: Block, values: Pair) -> None:
        """Note what the block's result lost."""
        lost = float(np.mean(np.square(values.changed - values.original, dtype=np.float64)))
        self.noise.append(lost / float(np.mean(np.square(values.original, dtype=np.float64))))

    def _correct(
        self,
        readers: Sequence[Linear],
        x: Pair,
        sums: InputSums,
        residuals: Mapping[ir.Value, ir.Value],
        order: Sequence[ir.Value],
    ) -> None:
        tokens, width = int(np.prod(x.changed.shape[:-1])), x.changed.shape[-1]
        drifts = x.changed is not x.original
        if not self.strength or not (drifts or residuals):
            return
        if tokens < TOKENS_PER_INPUT * width:
            for linear in readers:
                self.report.skip(
                    linear.matmul, f"{tokens} tokens are too few to correct {width} inputs"
                )
            return
        names = [name for linear in readers for name in weights_of(linear)]
        self.store.put(names, CORRECTION_MIX, mix_of(sums, self.strength))
        for linear in readers:
            add = None
            if (residual := residuals.get(linear.initializer)) is not None:
                found = add_of(sums, order.index(residual), self.strength)
                self.store.put(weights_of(linear), CORRECTION_ADD, found)
                add = self.store.find(weights_of(linear)[0], CORRECTION_ADD)
            mix = self.store.find(weights_of(linear)[0], CORRECTION_MIX)
            if mix is None:
                raise KeyError(linear.name)
            self.targets[linear.initializer] = Correction(mix, add).target(linear.weight)
            self.report.details["corrected"] = self.report.details.get("corrected", 0) + 1

    def _quantized(self, readers: Sequence[Linear], sums: InputSums) -> dict[ir.Value, Array]:
        factors: dict[int, Factor] = {}
        quantized: dict[ir.Value, Array] = {}
        for linear in readers:
            scheme = self.quantize.scheme_of(linear, PassReport())
            factor = None
            if self.quantize.method == "gptq":
                size = scheme.group_size
                factor = factors.get(size) or factor_of(sums.hessian, size, linear.name)
                factors[size] = factor
            weight = self.targets.get(linear.initializer, linear.weight)
            quantized[linear.initializer] = _rounded(weight, scheme, factor, linear.name)
        return quantized


def _rounded(weight: LazyWeight, scheme: Scheme, factor: Factor | None, name: str) -> Float32:
    """What the quantized rows of a weight stand for."""
    whole = np.empty(weight.rows_shape, np.float32)
    for start, stop in weight.tiles(256):
        rows = np.asarray(weight.read_rows(start, stop), np.float32)
        if factor is None:
            tile = quantize_rows(rows, scheme, name)
        else:
            tile = gptq_rows(rows, factor, scheme, name)
        whole[start:stop] = dequantize_rows(tile, scheme.group_size)
    return whole


def _by_input(linears: Iterable[Linear]) -> dict[ir.Value, list[Linear]]:
    found: dict[ir.Value, list[Linear]] = {}
    for linear in linears:
        found.setdefault(linear.x, []).append(linear)
    return found


def _residual(linear: Linear, values: Mapping[ir.Value, Pair]) -> ir.Value | None:
    """What the layer's result is added to, if that is known before the layer has run."""
    uses = list(linear.output.uses())
    if len(uses) != 1 or not is_op(uses[0].node, "Add"):
        return None
    other = uses[0].node.inputs[1 - uses[0].idx]
    return other if other in values else None
