"""Changes weights stage after stage while the reference runs, each for the inputs it then gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.graph import constant
from optc.ir.linear import Linear
from optc.ir.pipeline.base import PassReport
from optc.passes.calibrating.adequacy import Adequacy, HalfSums
from optc.passes.calibrating.targets import TOKENS_PER_INPUT, Correction, Solver
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.propagate.sums import drift_of, result_drift_of
from optc.proof.reference.calibration import CalibrationStore, weights_of
from optc.proof.reference.partition import Block
from optc.proof.reference.streams.floats import Float32
from optc.proof.reference.streams.gram import TOKENS, Float64, hessian_of
from optc.proof.reference.streams.stage import Stage
from optc.proof.reference.submodel import Array
from optc.proof.reference.two_streams import Pair, Seen

#: Other contents, rows [N, K], for the initializers of layers that read one input: from the layers,
#: E[x' x'ᵀ] of that input, and corrections by initializer (none where there is none).
ChangeLayers = Callable[
    [Sequence[Linear], Float64, Mapping[ir.Value, Correction]], Mapping[ir.Value, Array]
]


@dataclass
class CorrectedStages:
    """Gives each layer its target, and has that rounded or pruned (a `Replacer`).

    Attributes:
        change: What is done to the layers that read one input.
        store: Takes the Hessian of the head's input.
        report: Counts what was corrected, and says what was not.
        strength: Share of the correction.
        tokens: Of the text.
        head: The head: its weight is not corrected, for embeddings may share it; None if nothing
            is to be known of it.
        stays: Whether a layer's weight stays as it is: of inputs of such layers nothing is summed.
        noise: For each block, the mean square of what its result lost over that of the result.
        adequacy: Whether the text was enough.
        done: Names of the weights that were changed, and of the head's.
    """

    change: ChangeLayers
    store: CalibrationStore
    report: PassReport
    strength: float
    tokens: int
    head: Linear | None = None
    stays: Callable[[Linear], bool] = lambda linear: False
    noise: list[float] = field(default_factory=list)
    adequacy: Adequacy = field(default_factory=lambda: Adequacy(moments=True))
    done: list[str] = field(default_factory=list)

    def has(self, linear: Linear) -> bool:
        """True if the layer's weight was changed, or the Hessian of the head's input noted."""
        return linear.name in self.done

    def compared(self, stage: Stage) -> Iterable[ir.Value]:
        """Of layers that are corrected, their inputs, or the sum of residual and result instead."""
        for linear in stage.linears:
            if self.strength and self._enough(linear):
                residual = residual_of(linear, stage)
                yield linear.x if residual is None else residual.total

    def weights(self, stage: Stage, seen: Seen) -> Mapping[ir.Value, Array]:
        """Change the layers of one stage."""
        replaced: dict[ir.Value, Array] = {}
        for x, readers in by_input(stage.linears).items():
            if all(map(self.stays, readers)):
                self.done += [linear.name for linear in readers]
                self.report.add("linear layer as given", len(readers))
                continue
            hessian = seen.products.hessian(seen.changed[x])
            corrections = self._corrections(readers, stage, seen, hessian)
            replaced |= self.change(readers, hessian, corrections)
            self.done += [linear.name for linear in readers]
            halves = HalfSums()
            halves.add(seen.changed[x], 0)
            self.adequacy.add(readers[0].name, halves)
        return replaced

    def head_input(self, hidden: Pair) -> None:
        """Note the Hessian of the head's input."""
        if self.head is not None:
            self.store.put(weights_of(self.head), INPUT_HESSIAN, hessian_of(hidden.changed))
            self.done.append(self.head.name)
            self.report.add("head")

    def block_done(self, block: Block, values: Pair) -> None:
        """Note what the block's result lost."""
        self.noise.append(lost_share(values))

    def _enough(self, linear: Linear) -> bool:
        """True if there is text enough to correct the layer."""
        return self.tokens >= TOKENS_PER_INPUT * linear.weight.rows_shape[1]

    def _corrections(
        self, readers: Sequence[Linear], stage: Stage, seen: Seen, hessian: Float64
    ) -> dict[ir.Value, Correction]:
        """Those of layers that read one input, by their initializers; it may be none."""
        needed = [linear for linear in readers if is_off(linear, stage, seen)]
        if not self.strength or not needed:
            return {}
        if not self._enough(readers[0]):
            for linear in needed:
                width = linear.weight.rows_shape[1]
                reason = f"{self.tokens} tokens are too few to correct {width} inputs"
                self.report.skip(linear.matmul, reason)
            return {}
        details = self.report.details
        details["corrected"] = details.get("corrected", 0) + len(needed)
        solve = Solver(hessian, self.strength, readers[0].name)
        found, mix = dict[ir.Value, Correction](), None
        for linear in needed:
            if (residual := residual_of(linear, stage)) is not None:
                drift = result_drift(linear, residual, seen)
                found[linear.initializer] = Correction(add=solve(drift))
                continue
            if mix is None:
                inputs = Pair(seen.changed[linear.x], seen.original[linear.x])
                mix = solve(drift_of(inputs, seen.products))
            found[linear.initializer] = Correction(mix)
        return found


def lost_share(values: Pair) -> float:
    """The mean square of what a value [..., D] lost over that of the value; of a value that is zero
    everywhere 1, or 0 where it stayed so."""
    changed, original = (
        one.reshape(-1, one.shape[-1]) for one in (values.changed, values.original)
    )
    lost = size = 0.0
    for at in range(0, len(changed), TOKENS):
        mine, its = changed[at : at + TOKENS], original[at : at + TOKENS]
        lost += _squares(mine - its)
        size += _squares(its)
    return lost / size if size else float(lost > 0)


def _squares(values: Float32) -> float:
    """The sum of squares of values [T, D]: of a token in float32, of tokens in float64."""
    return float(np.einsum("td,td->t", values, values).sum(dtype=np.float64))


def rows_of(linear: Linear) -> Float32:
    """All rows [N, K] of a weight."""
    return np.asarray(linear.weight.read_rows(0, linear.weight.rows_shape[0]), np.float32)


def by_input(linears: Iterable[Linear]) -> dict[ir.Value, list[Linear]]:
    """The layers that read each value."""
    found: dict[ir.Value, list[Linear]] = {}
    for linear in linears:
        found.setdefault(linear.x, []).append(linear)
    return found


@dataclass(frozen=True)
class Residual:
    """The value that a layer's result is added to, and the sum."""

    value: ir.Value
    total: ir.Value


def residual_of(linear: Linear, stage: Stage) -> Residual | None:
    """Of a layer of ``stage`` whose result is added to a value of an earlier stage, else None."""
    uses = list(linear.output.uses())
    if len(uses) != 1 or not is_op(uses[0].node, "Add"):
        return None
    other, total = uses[0].node.inputs[1 - uses[0].idx], uses[0].node.outputs[0]
    known = other is not None and other in stage.reads and total in stage.gives
    return Residual(other, total) if known and other is not None else None


def is_off(linear: Linear, stage: Stage, seen: Seen) -> bool:
    """True if the layer's input, or what its result is added to, has changed."""
    residual = residual_of(linear, stage)
    values = [linear.x] if residual is None else [linear.x, residual.value]
    return any(seen.changed[value] is not seen.original.get(value) for value in values)


def result_drift(linear: Linear, residual: Residual, seen: Seen) -> Float64:
    """E[(W x + r - W x' - r') x'ᵀ], [N, K]: what residual and result together lack."""
    bias = None if linear.bias is None else constant(linear.bias)
    return result_drift_of(
        seen.changed[linear.x],
        Pair(seen.changed[residual.value], seen.original[residual.total]),
        rows_of(linear),
        None if bias is None else bias.numpy().astype(np.float32),
        seen.products,
    )
