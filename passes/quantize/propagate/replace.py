"""Quantizes stage after stage while the reference runs, each for the inputs that it then gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optc.blas_threads import one_blas_thread
from optc.ir.functions import is_op
from optc.ir.linear import Linear
from optc.ir.quantized_rows import QuantizedTile, joined_tiles
from optc.passes.quantize.adequacy import Adequacy, HalfSums
from optc.passes.quantize.affine import RoundRows, dequantize_rows, quantize_rows
from optc.passes.quantize.gptq.factor import factor_of
from optc.passes.quantize.gptq.rows import gptq_rows
from optc.passes.quantize.kept_rows import find_rows, keep_rows
from optc.passes.quantize.propagate.sums import (
    Float32,
    Float64,
    drift_of,
    hessian_of,
    residual_drift_of,
    result_drift_of,
)
from optc.passes.quantize.propagate.targets import TOKENS_PER_INPUT, Correction, Solver
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.scheme import Scheme
from optc.passes.quantize.statistics import INPUT_HESSIAN
from optc.pipeline.base import PassReport
from optc.reference.calibration import CalibrationStore, weights_of
from optc.reference.partition import Block
from optc.reference.submodel import Array
from optc.reference.two_streams import Pair
from optc.target import usable_threads

#: Rows that a thread rounds at a time.
_TILE = 256


@dataclass
class QuantizeStages:
    """Gives each layer its target, and quantizes that (a `Replacer`).

    Attributes:
        quantize: How the weights are quantized.
        store: Takes the quantized rows, and the Hessian of the head's input.
        report: Counts what was corrected, and says what was not.
        strength: Share of the correction.
        head: The head: its weight is not corrected, for embeddings may share it.
        noise: For each block, the mean square of what its result lost over that of the result.
        adequacy: Whether the text was enough.
    """

    quantize: QuantizeWeights
    store: CalibrationStore
    report: PassReport
    strength: float
    head: Linear | None = None
    noise: list[float] = field(default_factory=list)
    adequacy: Adequacy = field(default_factory=lambda: Adequacy(moments=True))

    def weights(
        self, linears: Sequence[Linear], values: Mapping[ir.Value, Pair]
    ) -> Mapping[ir.Value, Array]:
        """Quantize the layers of one stage."""
        replaced: dict[ir.Value, Array] = {}
        for x, readers in _by_input(linears).items():
            hessian = hessian_of(values[x])
            corrections = self._corrections(readers, values, hessian)
            rounders = _Rounders(self.quantize, hessian)
            for linear in readers:
                scheme = self.quantize.scheme_of(linear, PassReport())
                if find_rows(self.store, linear, scheme, linear.name) is None:
                    correction = corrections.get(linear.initializer, Correction())
                    rows = _rounded(linear, scheme, correction, rounders.of(linear, scheme))
                    keep_rows(self.store, linear, scheme, rows)
                replaced[linear.initializer] = _kept_weight(self.store, linear, scheme)
            halves = HalfSums()
            halves.add(values[x].changed, 0)
            self.adequacy.add(readers[0].name, halves)
            self.report.add("linear layer", len(readers))
        return replaced

    def head_input(self, hidden: Pair) -> None:
        """Note the Hessian of the head's input."""
        if self.head is not None:
            self.store.put(weights_of(self.head), INPUT_HESSIAN, hessian_of(hidden))
            self.report.add("head")

    def block_done(self, block: Block, values: Pair) -> None:
        """Note what the block's result lost."""
        lost = float(np.mean(np.square(values.changed - values.original, dtype=np.float64)))
        self.noise.append(lost / float(np.mean(np.square(values.original, dtype=np.float64))))

    def _corrections(
        self, readers: Sequence[Linear], values: Mapping[ir.Value, Pair], hessian: Float64
    ) -> dict[ir.Value, Correction]:
        """Those of layers that read one input, by their initializers; it may be none."""
        x = values[readers[0].x]
        residuals = {one.initializer: _residual(one, values) for one in readers}
        drifts = x.changed is not x.original
        if not self.strength or not (drifts or any(residuals.values())):
            return {}
        tokens, width = int(np.prod(x.changed.shape[:-1])), x.changed.shape[-1]
        if tokens < TOKENS_PER_INPUT * width:
            for linear in readers:
                reason = f"{tokens} tokens are too few to correct {width} inputs"
                self.report.skip(linear.matmul, reason)
            return {}
        details = self.report.details
        details["corrected"] = details.get("corrected", 0) + len(readers)
        solve = Solver(hessian, self.strength, readers[0].name)
        if sum(one.weight.rows_shape[0] for one in readers) < width:
            return {
                one.initializer: Correction(
                    add=solve(result_drift_of(_rows(one), x, residuals[one.initializer]))
                )
                for one in readers
            }
        mix = solve(drift_of(x)) if drifts else None
        adds = {
            value: None if residual is None else solve(residual_drift_of(x, residual))
            for value, residual in residuals.items()
        }
        return {value: Correction(mix, add) for value, add in adds.items()}


class _Rounders:
    """How the weights of layers that read one input are rounded; a factor for each group size."""

    def __init__(self, quantize: QuantizeWeights, hessian: Float64) -> None:
        self._gptq, self._hessian = quantize.method == "gptq", hessian
        self._known: dict[int, RoundRows] = {}

    def of(self, linear: Linear, scheme: Scheme) -> RoundRows:
        if not self._gptq:
            return quantize_rows
        if (known := self._known.get(scheme.group_size)) is not None:
            return known
        factor = factor_of(self._hessian, scheme.group_size, linear.name)

        def round_rows(rows: Float32, scheme: Scheme, name: str) -> QuantizedTile:
            return gptq_rows(rows, factor, scheme, name)

        self._known[scheme.group_size] = round_rows
        return round_rows


def _rounded(
    linear: Linear, scheme: Scheme, correction: Correction, round_rows: RoundRows
) -> QuantizedTile:
    """All rows of a layer's target, rounded."""
    count = linear.weight.rows_shape[0]

    def tile(start: int) -> QuantizedTile:
        rows = np.asarray(linear.weight.read_rows(start, min(start + _TILE, count)), np.float32)
        return round_rows(correction.target(rows, start), scheme, linear.name)

    with one_blas_thread(), ThreadPoolExecutor(usable_threads()) as pool:
        tiles = list(pool.map(tile, range(0, count, _TILE)))
    return joined_tiles(tiles)


def _kept_weight(store: CalibrationStore, linear: Linear, scheme: Scheme) -> Float32:
    """What the kept rows of a weight stand for."""
    kept = find_rows(store, linear, scheme, linear.name)
    if kept is None:
        raise KeyError(linear.name)
    whole = np.empty((kept.rows, kept.columns), np.float32)
    for start in range(0, kept.rows, _TILE):
        stop = min(start + _TILE, kept.rows)
        whole[start:stop] = dequantize_rows(kept.read(start, stop), scheme.group_size)
    return whole


def _rows(linear: Linear) -> Float32:
    return np.asarray(linear.weight.read_rows(0, linear.weight.rows_shape[0]), np.float32)


def _by_input(linears: Iterable[Linear]) -> dict[ir.Value, list[Linear]]:
    found: dict[ir.Value, list[Linear]] = {}
    for linear in linears:
        found.setdefault(linear.x, []).append(linear)
    return found


def _residual(linear: Linear, values: Mapping[ir.Value, Pair]) -> Pair | None:
    """What the layer's result is added to, if that is known before the layer has run."""
    uses = list(linear.output.uses())
    if len(uses) != 1 or not is_op(uses[0].node, "Add"):
        return None
    other = uses[0].node.inputs[1 - uses[0].idx]
    return None if other is None else values.get(other)
