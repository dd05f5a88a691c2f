"""Layers that lose most when they are rounded stay float, so that outputs hold a bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.proof.reference.tensor_samples import Sample
from optc.proof.reference.tensor_values import ValueRun

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
#: Rows of the samples by which layers are ordered: more tell the same, and take as many runs of the
#: model as it has layers.
_ROWS = 16
#: Of the error that a bound allows, so much is allowed over the samples that ranges come from:
#: others lose more.
_SHARE = 0.8
#: Rows of which flips of the largest value are counted; of fewer they are expected as well.
_COUNTED = 256
#: Measures that can be told from outputs alone, each with the largest loss that a bound allows.
_ALLOWED: Mapping[str, Callable[[float], float]] = {
    "sqnr_db": lambda bound: 10 ** (-bound / 10),
    "cosine_mean": lambda bound: 1 - bound,
    "output_error": lambda bound: bound,
    "top1_agreement": lambda bound: 1 - bound,
    "class_agreement": lambda bound: 1 - bound,
}
#: Writes the integers of a model into it, but for the layers of these names.
Write = Callable[[ir.Model, Collection[str]], None]


@dataclass(frozen=True)
class FloatLayers:
    """The layers that stay float.

    Attributes:
        names: Of the layers, the one that loses most first.
        held: Whether the outputs hold all bounds so. False: even one layer that is rounded breaks
            one, so that none stays float, and the gates tell what is lost.
    """

    names: tuple[str, ...]
    held: bool


class OutputCheck:
    """A model's float outputs, and the losses of others beside them.

    Args:
        model: It is not changed.
        samples: Inputs.
        bounds: By measure; those that outputs alone do not tell are left out.
    """

    def __init__(
        self, model: ir.Model, samples: Sequence[Sample], bounds: Mapping[str, float]
    ) -> None:
        self._samples = samples
        self._allowed = {
            name: _SHARE * _ALLOWED[name](bound)
            for name, bound in bounds.items()
            if name in _ALLOWED
        }
        self._wanted = _outputs(model, samples)

    @property
    def needed(self) -> bool:
        """True if there is a bound to hold."""
        return bool(self._allowed)

    def losses(self, model: ir.Model) -> dict[str, float]:
        """Losses of a model's outputs: 0 where nothing is lost."""
        return losses(_outputs(model, self._samples), self._wanted)

    def holds(self, model: ir.Model) -> bool:
        """True if a model's outputs hold all bounds; what has no rows holds."""
        found = self.losses(model)
        return all(found.get(name, 0.0) <= most for name, most in self._allowed.items())


def choose_float_layers(
    model: ir.Model,
    write: Write,
    names: Sequence[str],
    samples: Sequence[Sample],
    bounds: Mapping[str, float],
) -> FloatLayers:
    """The fewest layers whose rounding has to be left out, in the order of what each loses alone.

    Layers are ordered by the noise of the outputs when a layer alone is rounded. How many of them
    are left out is found by halving, as though each left out made the outputs better.

    Args:
        model: In float; it is not changed.
        write: Rounds all other layers of a copy.
        names: Of all layers.
        samples: Inputs.
        bounds: By measure.
    """
    check = OutputCheck(model, samples, bounds)
    if not check.needed or _holds(check, model, write, ()):
        return FloatLayers((), held=True)
    few = OutputCheck(model, _few(samples), {})
    noise = {}
    for name in names:
        alone = _rounded(model, write, [other for other in names if other != name])
        noise[name] = few.losses(alone).get("sqnr_db", 0.0)
    order = sorted(names, key=lambda name: -noise[name])
    least, most = 1, len(order)
    while least < most:
        middle = (least + most) // 2
        if _holds(check, model, write, order[:middle]):
            most = middle
        else:
            least = middle + 1
    if most == len(order):
        return FloatLayers((), held=False)
    return FloatLayers(tuple(order[:most]), held=True)


def losses(found: Sequence[Sequence[Array]], wanted: Sequence[Sequence[Array]]) -> dict[str, float]:
    """Losses of outputs beside those that are wanted, of each sample in order, by measure: the
    power of the error over that of the outputs, one less the mean cosine of rows, the largest error
    over the largest value, and shares of rows, or of images, with another largest value; of few
    images at least the share that `expected_flips` tells."""
    signal = noise = worst = 0.0
    cosines: list[Float64] = []
    rows: list[npt.NDArray[np.bool_]] = []
    classes: list[npt.NDArray[np.bool_]] = []
    images: list[tuple[Float64, Float64]] = []
    largest = [max(float(np.abs(one[i]).max(initial=0)) for one in wanted) for i in _places(wanted)]
    for ours, theirs in zip(found, wanted, strict=True):
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            x, y = a.astype(np.float64), b.astype(np.float64)
            noise += float(np.square(x - y).sum())
            signal += float(np.square(y).sum())
            worst = max(worst, float(np.abs(x - y).max(initial=0)) / max(largest[index], 1e-300))
            if y.ndim > 1 and y.shape[-1] > 1:
                cosines.append(_cosines(x, y))
                rows.append(x.argmax(-1).ravel() == y.argmax(-1).ravel())
            if index == 0 and y.ndim > 1 and y.shape[1] > 1:
                classes.append(x.argmax(1).ravel() == y.argmax(1).ravel())
                images.append((_classes_last(x), _classes_last(y)))
    told = {"sqnr_db": noise / signal if signal else 0.0, "output_error": worst}
    if cosines:
        told["cosine_mean"] = 1 - float(np.concatenate(cosines).mean())
        told["top1_agreement"] = 1 - float(np.concatenate(rows).mean())
    if classes:
        counted = 1 - float(np.concatenate(classes).mean())
        pairs = [np.concatenate(side) for side in zip(*images, strict=True)]
        few = len(pairs[0]) < _COUNTED
        told["class_agreement"] = max(counted, expected_flips(*pairs)) if few else counted
    return {name: loss if math.isfinite(loss) else math.inf for name, loss in told.items()}


def expected_flips(found: Float64, wanted: Float64) -> float:
    """Share of rows [N, C] whose largest value would be another one, by the errors of all rows.

    Of few rows it tells more than a count: the error of the difference between a row's first two
    values is taken as normal, with the spread that it has over all rows. Probabilities are compared
    by their logarithms.
    """
    if not wanted.size or wanted.shape[1] < 2:
        return 0.0
    if (wanted >= 0).all() and np.allclose(wanted.sum(axis=1), 1, atol=1e-3):
        found, wanted = (np.log(np.maximum(one, 1e-12)) for one in (found, wanted))
    first, second = np.argsort(-wanted, axis=1)[:, :2].T
    rows = np.arange(len(wanted))
    margins = wanted[rows, first] - wanted[rows, second]
    errors = found[rows, first] - found[rows, second] - margins
    spread = float(np.sqrt(np.mean(np.square(errors))))
    if not spread:
        return 0.0
    return float(np.mean([math.erfc(one / spread / math.sqrt(2)) / 2 for one in margins]))


def _classes_last(array: Float64) -> Float64:
    """Rows of classes, which are along the second axis."""
    moved = np.moveaxis(array, 1, -1)
    return moved.reshape(-1, moved.shape[-1])


def _places(wanted: Sequence[Sequence[Array]]) -> range:
    return range(len(wanted[0]))


def _cosines(x: Float64, y: Float64) -> Float64:
    x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    same = (x == y).all(axis=1)  # rows of zeros have no direction
    found: Float64 = np.where(same, 1.0, (x * y).sum(axis=1) / np.maximum(norms, 1e-300))
    return found


def _holds(check: OutputCheck, model: ir.Model, write: Write, left: Collection[str]) -> bool:
    return check.holds(_rounded(model, write, left))


def _rounded(model: ir.Model, write: Write, left: Collection[str]) -> ir.Model:
    copy = model.clone()
    write(copy, left)
    return copy


def _few(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The first samples, of so many rows at least."""
    found: list[Sample] = []
    rows = 0
    for sample in samples:
        if rows >= _ROWS:
            break
        found.append(sample)
        rows += max((len(array) for array in sample.values() if array.ndim), default=1)
    return found


def _outputs(model: ir.Model, samples: Sequence[Sample]) -> list[list[Array]]:
    """Float outputs of each sample, in order."""
    floats = [
        value
        for value in model.graph.outputs
        if value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
    ]
    run = ValueRun(model, floats)
    found: list[list[Array]] = []
    for sample in samples:
        seen: dict[str, Array] = {}
        run.over([sample], seen.__setitem__)
        found.append([seen[str(value.name)] for value in floats])
    return found
