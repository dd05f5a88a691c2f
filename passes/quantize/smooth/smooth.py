"""`smooth`: channels of inputs are scaled, and weights the other way, so that both lose less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.errors import InputError
from optc.ir.forms.decoder import Dense
from optc.ir.forms.form import Form
from optc.ir.linear import Linear
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import LazyWeight
from optc.passes.numerics.statistics import CHANNEL_MEAN, CHANNEL_RANGE, INPUT_HESSIAN
from optc.passes.quantize.folding.fold import fold
from optc.passes.quantize.folding.places import Place, find_places
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.smooth.scales import Float64, smoothquant_scale
from optc.passes.quantize.smooth.search import best_scale
from optc.proof.reference.calibration import CalibrationStore, find_statistics, own_calibration

#: Passes that need to find the layers as this one leaves them.
LATER = (
    *("fuse-qkv", "fuse-gate-up", "prune-weights", "allocate-bits"),
    "propagate-errors",
    *("quantize-weights", "quantize-static", "cast-weights"),
)


@dataclass(frozen=True)
class Smooth(Pass):
    """Scales move from inputs of linear layers into their weights; the model's function stays.

    Where (`folding.places`): from norms into the layers that read them, from rows of ``up`` into
    columns of ``down``, from rows of the values' layer into columns of the attention's output
    layer. Statistics of the changed inputs are scaled with them. Weights stay lazy.

    Attributes:
        method: ``smoothquant``: inputs with outliers get a smaller range, for activations in
            integers. ``awq``: columns whose inputs are large are rounded more finely, for weights
            of few bits; how much is searched, with the grid of the ``quantize-weights`` behind it.
        alpha: For smoothquant, how much of the inputs' difficulty the weights take, 0 to 1.
    """

    name: ClassVar[str] = "smooth"
    pays: ClassVar[str] = (
        "Where inputs have outliers: on a planted model int8 lost .0006 instead of .0095 of "
        "mean KL, 4 bits .0070 with GPTQ instead of .0113; without outliers, nothing (ADR "
        "0098)."
    )
    phase: ClassVar[Phase] = Phase.BASIS
    effects: ClassVar[Effect] = Effect.MOVES_KV | Effect.REBASES_HIDDEN
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)
    after: ClassVar[tuple[str, ...]] = ("calibrate",)
    before: ClassVar[tuple[str, ...]] = LATER

    method: str = "smoothquant"
    alpha: float = 0.5

    def __post_init__(self) -> None:
        """Refuse options that mean nothing.

        Raises:
            InputError: An option is out of range.
        """
        self.check_option("method", ("smoothquant", "awq"))
        if not 0 <= self.alpha <= 1:
            raise InputError(f"alpha={self.alpha} is not 0 to 1", where=f"pass {self.name}")

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Hessians, with AWQ; those of scaled inputs stay."""
        from optc.passes.calibrating.predictions.memory import left_hessians, scaling

        awq = self.method == "awq"
        left = left_hessians(model) if awq else 0
        return PassCosts(working=scaling(model, searched=awq), left=left)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            InputError: Nothing is known of the inputs, AWQ has no ``quantize-weights`` behind it,
                or the model is to take adapters.
        """
        if context.dry:
            return _counted(model)
        refuse_adapters(self, context.later)
        behind = (one for one in context.later if isinstance(one, QuantizeWeights))
        quantize = next(behind, None)
        if self.method == "awq" and quantize is None:
            raise InputError(
                "no quantize-weights comes after it, whose grid awq needs",
                where=f"pass {self.name}",
                hint="put quantize-weights behind it, or set method=smoothquant",
            )
        report, store = PassReport(), own_calibration(model)
        chosen: list[dict[str, Any]] = []
        for place in find_places(model, report):
            if quantize is not None and self.method == "awq":
                alpha, scale, share = self._searched(place, store, quantize)
                weight = place.linears[0].name
                chosen.append({"weight": weight, "alpha": alpha, "loss": round(share, 4)})
            else:
                scale = self._balanced(place, store)
            fold(place, scale, store)
            report.add(place.kind)
        report.facts = {"statistics_sha256": store.digest()} | ({"awq": chosen} if chosen else {})
        return report

    def _balanced(self, place: Place, store: CalibrationStore) -> Float64:
        largest = self._statistic(place, store, CHANNEL_RANGE)
        columns = np.max([_largest_columns(one.weight) for one in place.linears], axis=0)
        return smoothquant_scale(
            _largest(largest, place.channels), _largest(columns, place.channels), self.alpha
        )

    def _searched(
        self, place: Place, store: CalibrationStore, quantize: QuantizeWeights
    ) -> tuple[float, Float64, float]:
        layers = [(one, quantize.scheme_of(one, PassReport())) for one in place.linears]
        mean = _mean(self._statistic(place, store, CHANNEL_MEAN), place.channels)
        hessian = self._statistic(place, store, INPUT_HESSIAN)
        return best_scale(layers, mean, place.channels, hessian)

    def _statistic(self, place: Place, store: CalibrationStore, statistic: str) -> Float64:
        linear: Linear = place.linears[0]
        found = find_statistics(store, linear, statistic)
        if not found:
            more = ", hessians: true" if self.method == "awq" else ""
            raise InputError(
                "nothing is known of the channels of its inputs",
                where=f"pass {self.name}, {linear.name}",
                hint=f"put calibrate: {{channels: true{more}}} before it",
            )
        return np.asarray(found[0], np.float64)


def _counted(model: ir.Model) -> PassReport:
    """The places; scales change nothing in the graph."""
    report = PassReport()
    for place in find_places(model, report):
        report.add(place.kind)
    return report


def refuse_adapters(one: Pass, later: Sequence[Pass]) -> None:
    """Adapters are trained for a model's inputs as they were.

    Raises:
        InputError: ``later`` makes room for them.
    """
    if any(other.name == "adapters" for other in later):
        raise InputError(
            "adapters would read other inputs than they were trained for",
            where=f"pass {one.name}",
            hint="leave out --adapters, or take a recipe without this pass",
        )


def _largest_columns(weight: LazyWeight) -> Float64:
    """[K] largest magnitudes."""
    largest = np.zeros(weight.rows_shape[1])
    for start, stop in weight.tiles():
        np.maximum(largest, np.abs(weight.read_rows(start, stop)).max(axis=0), out=largest)
    return largest


def _largest(values: Float64, channels: npt.NDArray[np.intp]) -> Float64:
    """Of the columns of each channel, the largest."""
    largest = np.zeros(int(channels.max()) + 1)
    np.maximum.at(largest, channels, values)
    return largest


def _mean(values: Float64, channels: npt.NDArray[np.intp]) -> Float64:
    """Of the columns of each channel, the mean."""
    mean: Float64 = np.bincount(channels, values) / np.bincount(channels)
    return mean
