"""Prunes the layers that read one input, each towards its target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.ir.linear import Linear, weights_in
from optc.ir.pipeline.base import PassReport
from optc.passes.calibrating.targets import Correction
from optc.passes.prune.weights.amounts import Amount, LayerAmounts
from optc.passes.prune.weights.kept import find_pruned, keep_pruned
from optc.passes.prune.weights.masks import Float32
from optc.passes.prune.weights.methods import Method, relative_loss
from optc.passes.prune.weights.scores import Float64
from optc.passes.quantize.propagate.stages import rows_of
from optc.proof.reference.calibration import CalibrationStore, weights_of
from optc.proof.reference.submodel import Array


@dataclass
class PruneLayers:
    """Prunes targets (`optc.passes.quantize.propagate.stages.ChangeLayers`).

    Layers of one input are pruned as one weight, so that those that matter less lose more of their
    weights.

    Attributes:
        method: How.
        amounts: How much of each weight.
        store: Takes the pruned weights.
        statistic: What they are called there.
        report: Counts the layers, and says what is left alone.
        replaces: Whether later layers see what pruning this one does to their inputs.
        losses: By weight, what its results lose of their squares.
        pruned: Weights that are zero now.
        weights: Weights of the layers that were pruned.
    """

    method: Method
    amounts: LayerAmounts
    store: CalibrationStore
    statistic: str
    report: PassReport
    replaces: bool
    losses: dict[str, float] = field(default_factory=dict)
    pruned: int = 0
    weights: int = 0

    def __call__(
        self,
        readers: Sequence[Linear],
        hessian: Float64 | None,
        corrections: Mapping[ir.Value, Correction],
    ) -> Mapping[ir.Value, Array]:
        """Prune the weights of layers that read one input."""
        replaced: dict[ir.Value, Array] = {}
        for amount, linears in self._by_amount(readers).items():
            parts = self._kept(linears)
            if parts is None:
                targets = [
                    corrections.get(one.initializer, Correction()).target(rows_of(one), 0)
                    for one in linears
                ]
                parts = self._prune(linears, targets, hessian, amount)
            for linear, part in zip(linears, parts, strict=True):
                self.pruned += part.size - int(np.count_nonzero(part))
                self.weights += part.size
                replaced[linear.initializer] = part
            self.report.add(amount.label, len(linears))
        return replaced if self.replaces else {}

    def facts(self) -> dict[str, Any]:
        """Figures of what was pruned, and of the weight that lost the most."""
        facts: dict[str, Any] = {
            "weights": self.weights,
            "sparsity": round(self.pruned / self.weights, 6) if self.weights else 0.0,
        }
        if self.losses:
            worst = max(self.losses, key=lambda name: self.losses[name])
            facts["loss_of_results"] = {
                "median": float(f"{median(self.losses.values()):.4g}"),
                "largest": float(f"{self.losses[worst]:.4g}"),
                "weight": worst,
            }
        return facts

    def _by_amount(self, readers: Iterable[Linear]) -> dict[Amount, list[Linear]]:
        found: dict[Amount, list[Linear]] = {}
        for linear in readers:
            amount = self.amounts.of(weights_of(linear)[0])
            columns = linear.weight.rows_shape[1]
            if not amount.share:
                self.report.skip(linear.matmul, "it stays dense (sparsity=0)")
            elif not amount.fits(columns):
                reason = f"K={columns} of {linear.name} is not a multiple of {amount.of}"
                self.report.miss(linear.matmul, f"{reason}: it stays dense", weights_in(linear))
            else:
                found.setdefault(amount, []).append(linear)
        return found

    def _kept(self, linears: Sequence[Linear]) -> list[Float32] | None:
        """Pruned weights that the store has: those of a model of which this one is a part."""
        found = [find_pruned(self.store, one, self.statistic) for one in linears]
        weights = [one for one in found if one is not None]
        if len(weights) < len(found):
            return None
        return [np.asarray(one.read_rows(0, one.rows_shape[0]), np.float32) for one in weights]

    def _prune(
        self,
        linears: Sequence[Linear],
        targets: Sequence[Float32],
        hessian: Float64 | None,
        amount: Amount,
    ) -> list[Float32]:
        """Prune targets as one weight, and keep what they become."""
        whole = np.concatenate(targets) if len(targets) > 1 else targets[0]
        pruned = self.method(whole, hessian, amount, linears[0].name)
        if hessian is not None:
            self.losses[linears[0].name] = relative_loss(pruned, whole, hessian)
        parts = np.split(pruned, np.cumsum([len(one) for one in targets])[:-1])
        for linear, part in zip(linears, parts, strict=True):
            keep_pruned(self.store, linear, self.statistic, part)
        return parts
