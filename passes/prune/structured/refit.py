"""Weights fitted anew, layer after layer, for what was taken out before them and of their inputs.

A layer W that gave W x, added to a residual r, now reads x' and is added to r'. The weight that
gives back most of W x + r is, by least squares over a text,

    W' = W + E[(W x + r - W x' - r') x'ᵀ] (E[x' x'ᵀ] + d I)⁻¹

and where columns of it go, `obs.refitted` of that. What goes has zero columns while the reference
runs, so that both runs are of one graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.linear import Linear
from optc.ir.pipeline.base import PassReport
from optc.passes.calibrating.targets import TOKENS_PER_INPUT, Solver
from optc.passes.prune.structured.cut import slices_of
from optc.passes.prune.structured.decisions import Ledger
from optc.passes.prune.structured.obs import damped, least_important, refitted
from optc.passes.quantize.propagate.stages import (
    by_input,
    is_off,
    lost_share,
    residual_of,
    result_drift,
    rows_of,
)
from optc.passes.quantize.propagate.sums import drift_of
from optc.proof.reference.partition import Block
from optc.proof.reference.streams.floats import Float32
from optc.proof.reference.streams.gram import Float64
from optc.proof.reference.streams.stage import Stage
from optc.proof.reference.submodel import Array
from optc.proof.reference.two_streams import Pair, Seen

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Cut:
    """The cut of the inputs of one linear layer.

    Attributes:
        units: Slices of equal width that its inputs are made of.
        left: How many of them stay; which, is chosen.
        kept: Those that stay, where that is known.
    """

    units: int
    left: int
    kept: Indices | None = None


@dataclass(frozen=True)
class _Left:
    """The part of an input that stays: its units, their columns [n], and H + d I [K, K] of all."""

    units: Indices
    columns: Indices
    hessian: Float64


@dataclass
class RefitStages:
    """Cuts layers, and fits what is left of them and those behind them (a `Replacer`).

    Attributes:
        cuts: By initializers.
        ledger: Gets the units that stay, and the weights that are fitted.
        report: Counts what was fitted, and says what was not.
        tokens: Of the text.
        refit: Whether weights are fitted; else columns are cut as they are.
        lost: For each block, the mean square of what its result lost over that of the result.
    """

    cuts: Mapping[ir.Value, Cut]
    ledger: Ledger
    report: PassReport
    tokens: int
    refit: bool = True
    lost: list[float] = field(default_factory=list)
    _chosen: dict[ir.Value, Indices] = field(default_factory=dict, init=False, repr=False)

    def compared(self, stage: Stage) -> Iterable[ir.Value]:
        """Of layers that are fitted, their inputs, or the sum of residual and result instead."""
        for linear in stage.linears:
            if self.refit and self._enough(linear):
                residual = residual_of(linear, stage)
                yield linear.x if residual is None else residual.total

    def weights(self, stage: Stage, seen: Seen) -> Mapping[ir.Value, Array]:
        """Cut and fit the layers of one stage."""
        replaced: dict[ir.Value, Array] = {}
        for x, readers in by_input(stage.linears).items():
            wanted = [one for one in readers if self._concerns(one, stage, seen)]
            if not wanted:
                continue
            hessian = seen.products.hessian(seen.changed[x])
            targets = {
                one.initializer: self._target(one, stage, seen, hessian)
                for one in wanted
                if not self._goes(one)
            }
            left = self._left(x, targets, hessian)
            for linear in wanted:
                target = targets.get(linear.initializer)
                replaced[linear.initializer] = self._fitted(linear, target, left)
        return replaced

    def head_input(self, hidden: Pair) -> None:
        """The head stays."""

    def block_done(self, block: Block, values: Pair) -> None:
        """Note what the block's result lost."""
        self.lost.append(lost_share(values))

    def _concerns(self, linear: Linear, stage: Stage, seen: Seen) -> bool:
        return linear.initializer in self.cuts or (self.refit and is_off(linear, stage, seen))

    def _enough(self, linear: Linear) -> bool:
        """True if there is text enough to fit the layer."""
        return self.tokens >= TOKENS_PER_INPUT * linear.weight.rows_shape[1]

    def _goes(self, linear: Linear) -> bool:
        """True if nothing of the layer stays."""
        cut = self.cuts.get(linear.initializer)
        return cut is not None and not cut.left

    def _fitted(self, linear: Linear, target: Float32 | None, left: _Left | None) -> Float32:
        """The weight [N, K] as the reference runs on with it; what is decided of it is kept."""
        if target is None:
            self.ledger.keep_units(linear.name, np.zeros(0, np.intp))
            return np.zeros(linear.weight.rows_shape, np.float32)
        if left is None or linear.initializer not in self.cuts:
            self._keep(linear, target)
            return target
        self.ledger.keep_units(linear.name, left.units)
        weight = target.astype(np.float64)
        stays = weight[:, left.columns]
        if self.refit:
            stays = refitted(weight, left.hessian, left.columns)
            self._keep(linear, stays)
        padded = np.zeros(weight.shape, np.float32)
        padded[:, left.columns] = stays
        return padded

    def _left(
        self, x: ir.Value, targets: Mapping[ir.Value, Float32], hessian: Float64
    ) -> _Left | None:
        """The part of x that stays, for all layers that read it; None if none of them is cut.

        Layers that read one x lose the same units of it. These are chosen by the sum of what the
        layers lose: as if one layer had the rows of all.
        """
        cuts = {one: self.cuts[one] for one in targets if one in self.cuts}
        if not cuts:
            return None
        whole = damped(hessian, next(iter(cuts)).name or "")
        cut = next(iter(cuts.values()))
        kept = self._chosen.get(x, cut.kept)
        if kept is None:
            alive = hessian.diagonal() != 0  # dead inputs go first
            rows = np.concatenate([targets[one] * alive for one in cuts]).astype(np.float64)
            gone = least_important(rows, whole, cut.units - cut.left)
            kept = np.setdiff1d(np.arange(cut.units), gone)
        self._chosen[x] = kept
        return _Left(kept, slices_of(len(whole), cut.units, kept), whole)

    def _target(self, linear: Linear, stage: Stage, seen: Seen, hessian: Float64) -> Float32:
        """The ideal weight [N, K] if all columns stayed."""
        weight = rows_of(linear)
        if not self.refit or not is_off(linear, stage, seen):
            return weight
        if not self._enough(linear):
            width = linear.weight.rows_shape[1]
            reason = f"{self.tokens} tokens are too few to correct {width} inputs"
            self.report.skip(linear.matmul, reason)
            return weight
        solve = Solver(hessian, 1.0, linear.name)
        if (residual := residual_of(linear, stage)) is not None:
            return weight + solve(result_drift(linear, residual, seen))
        drift = drift_of(Pair(seen.changed[linear.x], seen.original[linear.x]))
        return weight + weight @ solve(drift)

    def _keep(self, linear: Linear, weight: Array) -> None:
        self.ledger.keep_weight(linear.name, weight)
        details = self.report.details
        details["refitted"] = details.get("refitted", 0) + 1
