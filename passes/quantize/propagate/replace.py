"""Quantizes the layers that read one input, each towards its target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from optc.ir.experts import feeds_router
from optc.ir.linear import Linear
from optc.ir.pipeline.base import PassReport
from optc.ir.quantized_rows import QuantizedTile, joined_tiles
from optc.passes.calibrating.targets import Correction
from optc.passes.numerics.affine import RoundRows, dequantize_rows, quantize_rows, zeros_of
from optc.passes.numerics.gptq.factor import Factor, factor_of
from optc.passes.numerics.gptq.rows import TILE, gptq_rows, tile_rows
from optc.passes.numerics.rounding import Zeros
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.kept_rows import find_rows, keep_rows
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import CalibrationStore
from optc.proof.reference.streams.floats import Float32
from optc.proof.reference.streams.gram import Float64
from optc.proof.reference.submodel import Array
from optc.system.hardware.blas_threads import one_blas_thread
from optc.system.hardware.target import usable_threads

#: Rounds rows by tiles of so many.
Rounder = tuple[RoundRows, int]


@dataclass(frozen=True)
class QuantizeLayers:
    """Rounds targets (`optc.passes.quantize.propagate.stages.ChangeLayers`).

    Attributes:
        quantize: How the weights are quantized.
        store: Takes the quantized rows.
        report: Counts the layers.
    """

    quantize: QuantizeWeights
    store: CalibrationStore
    report: PassReport

    def __call__(
        self,
        readers: Sequence[Linear],
        hessian: Float64,
        corrections: Mapping[ir.Value, Correction],
    ) -> Mapping[ir.Value, Array]:
        """Keep the rows of each layer, unless they are kept, and give what they stand for; layers
        before a router, and those that stay as the checkpoint has them, give nothing. The Hessian's
        memory is used for what is computed of it."""
        replaced: dict[ir.Value, Array] = {}
        quantized = [linear for linear in readers if not feeds_router(linear.output)]
        schemes = [self.quantize.scheme_of(linear, PassReport()) for linear in quantized]
        rounders = _Rounders(self.quantize, hessian, {one.group_size for one in schemes})
        for linear, scheme in zip(quantized, schemes, strict=True):
            if self.is_given(linear):
                self.report.add("linear layer as given")  # nothing is rounded, and nothing is lost
                continue
            if find_rows(self.store, linear, scheme, linear.name) is None:
                correction = corrections.get(linear.initializer, Correction())
                rows = _rounded(linear, scheme, correction, rounders.of(linear, scheme))
                keep_rows(self.store, linear, scheme, rows)
            replaced[linear.initializer] = _kept_weight(self.store, linear, scheme)
            self.report.add("linear layer")
        return replaced

    def is_given(self, linear: Linear, *, head: bool = False) -> bool:
        """True if the weight, of the head or of a layer, stays as the checkpoint has it."""
        scheme = self.quantize.scheme_of(linear, PassReport(), head=head)
        given = self.quantize.given_weights().rows(linear.weight, scheme, linear.name, table=head)
        return given is not None and not feeds_router(linear.output)


class _Rounders:
    """The rounding of the weights of layers that read one input; a factor for each group size."""

    def __init__(self, quantize: QuantizeWeights, hessian: Float64, sizes: Set[int]) -> None:
        self._gptq, self._hessian = quantize.method == "gptq", hessian
        self._sizes = sizes
        self._known: dict[int, Factor] = {}

    def of(self, linear: Linear, scheme: Scheme) -> Rounder:
        if not self._gptq:
            return quantize_rows, TILE
        factor, tile = self._factor(linear, scheme), tile_rows(*linear.weight.rows_shape)

        def round_rows(
            rows: Float32, scheme: Scheme, name: str, zeros: Zeros | None = None
        ) -> QuantizedTile:
            return gptq_rows(rows, factor, scheme, name, zeros, tile)

        return round_rows, tile

    def _factor(self, linear: Linear, scheme: Scheme) -> Factor:
        size = scheme.group_size
        if size not in self._known:
            last = self._sizes <= {*self._known, size}  # nobody needs the Hessian after it
            self._known[size] = factor_of(self._hessian, size, linear.name, consume=last)
        return self._known[size]


def _rounded(
    linear: Linear, scheme: Scheme, correction: Correction, rounder: Rounder
) -> QuantizedTile:
    """All rows of a layer's target, rounded."""
    count, (round_rows, size) = linear.weight.rows_shape[0], rounder

    def tile(start: int) -> QuantizedTile:
        rows = np.asarray(linear.weight.read_rows(start, min(start + size, count)), np.float32)
        zeros = zeros_of(rows, scheme)
        return round_rows(correction.target(rows, start), scheme, linear.name, zeros)

    with one_blas_thread(), ThreadPoolExecutor(usable_threads()) as pool:
        tiles = list(pool.map(tile, range(0, count, size)))
    return joined_tiles(tiles)


def _kept_weight(store: CalibrationStore, linear: Linear, scheme: Scheme) -> Float32:
    """The values of the kept rows of a weight."""
    kept = find_rows(store, linear, scheme, linear.name)
    if kept is None:
        raise KeyError(linear.name)
    whole = np.empty((kept.rows, kept.columns), np.float32)
    for start in range(0, kept.rows, TILE):
        stop = min(start + TILE, kept.rows)
        whole[start:stop] = dequantize_rows(kept.read(start, stop), scheme.group_size)
    return whole
