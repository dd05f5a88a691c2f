"""How much the loss depends on units of channels, by gradients: Taylor's series.

With values changed by d and gradients g of the loss, the divergence from the model as it was is
half of E[(g · d)²] a token, to second order, the Hessian being the Fisher information. A unit that
goes changes its own values a by -a; a layer whose weight [N, K] changes by D changes its results by
D x, which gives tr(F D H Dᵀ) / 2 with F = E[g gᵀ] and H = E[x xᵀ], if gradients and inputs are
independent (Molchanov et al., 2019, arXiv:1906.10771; Martens and Grosse, 2015, arXiv:1503.05671).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.executable.executable import Float32, Int32
from optc.passes.prune.structured.channels import Channels
from optc.passes.prune.structured.obs import damped
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.process_memory import give_back_freed
from optc.target import usable_threads
from optc.training.memory import backward_bytes

Float64 = npt.NDArray[np.float64]
#: The value of ``choose`` of passes that choose by it.
TAYLOR = "taylor"
_FLOAT32 = 4


class Gradients:
    """Sums over the gradients of the loss of a text.

    Args:
        model: Dense form; it is not changed.
        tokens: Windows [W, S].
        channels: Its.
        fisher: Whether `metric` will be asked for.
    """

    def __init__(
        self, model: ir.Model, tokens: Int32, channels: Sequence[Channels], *, fisher: bool
    ) -> None:
        from optc.training.gradients import run_backward  # brings PyTorch

        self._tokens = tokens.size
        self._units = {str(one.x.name): np.zeros(one.units) for one in channels}
        results = [linear.output for one in channels for linear in one.linears if fisher]
        self._fisher: dict[str, Float32 | None] = {str(one.name): None for one in results}
        names = {*self._units, *self._fisher}
        run_backward(model, tokens, names, usable_threads(), self._add)
        give_back_freed()  # all weights

    def estimates(self, channels: Channels) -> Float64:
        """The KL [units] that the model is expected to lose without each unit, in nats a token."""
        found: Float64 = self._units[str(channels.x.name)] / (2 * self._tokens)
        return found

    def metric(self, result: ir.Value) -> Float64:
        """M [N, N] so that a change d [N] of what a linear layer gives costs |M d|² / 2."""
        fisher = self._fisher.get(str(result.name))
        if fisher is None:
            raise ValueError(f"{result.name}: no gradients were summed")
        whole = damped(fisher.astype(np.float64) / self._tokens, str(result.name))
        root: Float64 = np.asarray(np.linalg.cholesky(whole), np.float64)
        return root.T

    def _add(self, window: Mapping[str, tuple[Float32, Float32]]) -> None:
        for name, (values, gradients) in window.items():
            if (total := self._units.get(name)) is not None:
                by_unit = (values * gradients).reshape(len(values), len(total), -1).sum(axis=2)
                total += np.square(by_unit, dtype=np.float64).sum(axis=0)
            if name in self._fisher:
                square, before = gradients.T @ gradients, self._fisher[name]
                self._fisher[name] = square if before is None else before + square


def most_important(costs: Float64, left: int) -> npt.NDArray[np.intp]:
    """The ``left`` units that cost most [units], ascending."""
    return np.sort(np.argsort(-costs, kind="stable")[:left])


def gradients_bytes(model: ir.Model, text: TextShape, channels: Sequence[Channels]) -> int:
    """Peak of `Gradients`: all weights, the values of one window, and the sums. PyTorch itself is
    there already: the importer brought it."""
    sums = sum(one.weight.rows_shape[0] ** 2 for c in channels for one in c.linears)
    return backward_bytes(model, text.window_tokens) + _FLOAT32 * sums
