"""What is left of a narrower residual stream fitted to the model as it was, layer after layer.

The reference runs the turned model twice. In one run the stream begins without the channels that
go, and rows of the layers that write them are zero: it gives what the narrower model does, for the
norms' mean is over all channels there, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from optc.ir.linear import Linear
from optc.passes.prune.structured.refit import RefitStages
from optc.passes.quantize.propagate.sums import drift_of
from optc.passes.quantize.propagate.targets import TOKENS_PER_INPUT, Solver
from optc.reference.stages.stage import Stage
from optc.reference.streams.gram import Float64, hessian_of
from optc.reference.submodel import Array
from optc.reference.two_streams import Pair, Seen


@dataclass
class StreamStages(RefitStages):
    """Fits readers and writers of the stream (a `Replacer`); `cuts` are those of the readers.

    Attributes:
        width: Channels of the stream that stay, the first ones.
        writers: Initializers of the layers that are added to it.
        last: Afterwards [D, n]: what the last norm gave, of what it now gives.
    """

    width: int = 0
    writers: frozenset[ir.Value] = frozenset()
    last: Float64 = field(default_factory=lambda: np.zeros((0, 0)))

    def start(self, embedded: Array) -> Array:
        """The stream that the changed run begins with."""
        narrower = embedded.copy()
        narrower[..., self.width :] = 0
        return narrower

    def weights(self, stage: Stage, seen: Seen) -> Mapping[ir.Value, Array]:
        """Fit the layers of one stage; channels that go get nothing."""
        found = dict(super().weights(stage, seen))
        for value in self.writers & found.keys():
            found[value] = np.concatenate(
                [found[value][: self.width], np.zeros_like(found[value][self.width :])]
            )
        return found

    def head_input(self, hidden: Pair) -> None:
        """Fit what the last norm gave."""
        hessian = hessian_of(hidden.changed)
        self.last = np.eye(len(hessian))[:, : self.width]
        if self.tokens >= TOKENS_PER_INPUT * self.width:
            solve = Solver(hessian, 1.0, "the head's input")
            self.last += solve(drift_of(hidden))[:, : self.width]

    def _concerns(self, linear: Linear, stage: Stage, seen: Seen) -> bool:
        return linear.initializer in self.writers or super()._concerns(linear, stage, seen)

    def _keep(self, linear: Linear, weight: Array) -> None:
        if linear.initializer in self.writers:
            weight = weight[: self.width]
        super()._keep(linear, weight)
