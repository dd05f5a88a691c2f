"""The loss of a model without some units of channels: KL, of many choices at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.linear import Linear
from optc.ir.weights import Array, LazyWeight, RowReader
from optc.passes.prune.structured.channels import Channels
from optc.passes.prune.structured.cut import slices_of
from optc.passes.prune.structured.obs import damped, refitted
from optc.proof.reference.calibration import CalibrationStore
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads
from optc.system.progress import tell

Indices = npt.NDArray[np.intp]
_HESSIAN = "hessian"


def measure_kl(
    model: ir.Model, tokens: Int32, variants: Sequence[Mapping[ir.Value, LazyWeight]]
) -> list[float]:
    """KL(model ‖ model with some weights changed) of each variant, on windows [W, S]."""
    from optc.proof.reference.variants.measure import measure_variants  # brings ONNX Runtime

    found = measure_variants(
        model,
        tokens,
        variants,
        usable_threads(),
        lambda done, total: tell("what can be taken out", done, total),
    )
    return [float(kl) for kl in found]


def zero_weight(linear: Linear) -> LazyWeight:
    """A weight of zeros in the place of a layer's."""
    columns = linear.weight.rows_shape[1]
    return _as(linear.weight, lambda start, stop: np.zeros((stop - start, columns), np.float32))


class ChannelVariants:
    """Models without units of channels, the layers that read them fitted to what is left.

    Args:
        model: Dense form; it is not changed.
        channels: Those that units go of.
        tokens: Windows [W, S] that inputs are summed over.
        refit: Whether layers are fitted; else their columns are cut.
    """

    def __init__(
        self, model: ir.Model, channels: Sequence[Channels], tokens: Int32, *, refit: bool
    ) -> None:
        self._model, self._channels, self._refit = model, channels, refit
        self._store = CalibrationStore()  # for its file: of many layers, sums are large
        if refit:
            self._sum(tokens)

    def measure(self, tokens: Int32, kept: Sequence[Mapping[int, Indices]]) -> list[float]:
        """The KL of each choice, which says what units stay of which channels, by index."""
        variants = [
            {
                linear.initializer: self._without(index, linear, units)
                for index, units in one.items()
                for linear in self._channels[index].linears
            }
            for one in kept
        ]
        return measure_kl(self._model, tokens, variants)

    def _sum(self, tokens: Int32) -> None:
        from optc.proof.reference.blockwise import observe  # brings ONNX Runtime
        from optc.proof.reference.input_hessians import HessianObserver

        names = {one.x: str(index) for index, one in enumerate(self._channels)}
        observer = HessianObserver(
            names, lambda value, found: self._store.put([names[value]], _HESSIAN, found)
        )
        observe(self._model, tokens, [observer], usable_threads())

    def _without(self, index: int, linear: Linear, kept: Indices) -> LazyWeight:
        """The weight with zeros for what goes, computed when it is read."""
        units = self._channels[index].units
        weight = linear.weight
        columns = slices_of(weight.rows_shape[1], units, kept)

        def read(start: int, stop: int) -> Array:
            rows = np.asarray(weight.read_rows(start, stop), np.float32)
            padded = np.zeros_like(rows)
            padded[:, columns] = rows[:, columns]
            if self._refit:
                hessian = np.asarray(self._store.find(str(index), _HESSIAN), np.float64)
                whole = damped(hessian, linear.name)
                padded[:, columns] = refitted(rows.astype(np.float64), whole, columns)
            return padded

        return _as(weight, read)


def _as(weight: LazyWeight, read: RowReader) -> LazyWeight:
    return LazyWeight(
        read,
        weight.rows_shape,
        ir.DataType.FLOAT,
        weight.name or "",
        transposed=weight.transposed,
    )
