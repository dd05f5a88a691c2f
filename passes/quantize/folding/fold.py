"""Moves a scale to its place, and keeps what a calibration knows of the changed inputs true."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.errors import InputError
from optc.ir.graph import constant
from optc.ir.linear import Linear, find_linear
from optc.passes.numerics.statistics import CHANNEL_MEAN, CHANNEL_RANGE, INPUT_HESSIAN, INPUT_RANGE
from optc.passes.quantize.folding.places import Part, Place
from optc.passes.quantize.folding.weights import Float32, scaled_columns, scaled_rows
from optc.proof.reference.calibration import CalibrationStore, weights_of

Float64 = npt.NDArray[np.float64]


def fold(place: Place, scale: Float64, store: CalibrationStore) -> None:
    """Divide the inputs x of the place's linear layers by ``scale`` [C], and multiply the columns
    of their weights by it.

    Raises:
        InputError: The store has a statistic of x of which nobody knows what becomes of it.
    """
    factors = scale[place.channels].astype(np.float32)
    for linear in place.linears:
        linear.initializer.const_value = scaled_columns(linear.weight, factors)
    for part in place.parts:
        divide(part, scale)
    rescale(place.linears, scale[place.channels], store)


def divide(part: Part, scale: Float64) -> None:
    """Divide rows, or elements, by ``scale`` [C]."""
    if part.matmul is not None:
        linear = find_linear(part.matmul)
        if linear is None:
            raise ValueError(f"{part.matmul.name}: not a linear layer any more")
        factors = np.ones(linear.weight.rows_shape[0], np.float32)
        factors[part.start : part.start + len(scale)] = 1 / scale
        linear.initializer.const_value = scaled_rows(linear.weight, factors)
        return
    vector = vector_of(part.initializer)
    vector[part.start : part.start + len(scale)] /= scale
    part.initializer.const_value = ir.tensor(vector, name=part.initializer.name)


def vector_of(value: ir.Value) -> Float32:
    """A copy of a constant [N]."""
    tensor = constant(value)
    if tensor is None:
        raise ValueError(f"{value.name} is no constant")
    return np.array(tensor.numpy(), np.float32)


def rescale(linears: list[Linear], scale: Float64, store: CalibrationStore) -> None:
    """Make the statistics of x those of x / ``scale`` [K].

    Raises:
        InputError: There is one of which nobody knows what becomes of it.
    """
    names = list(dict.fromkeys(name for linear in linears for name in weights_of(linear)))
    for known in [one.name for one in store.statistics() if one.weight == names[0]]:
        array = store.find(names[0], known)
        if array is None or known == INPUT_RANGE:
            continue
        if known == INPUT_HESSIAN:
            scaled = array / scale
            scaled /= scale[:, None]
        elif known in (CHANNEL_MEAN, CHANNEL_RANGE):
            scaled = array / scale
        else:
            raise InputError(
                f"the statistic {known} of {names[0]} does not survive another scale",
                where="pass smooth",
                hint="put the pass that takes it behind smooth",
            )
        store.put(names, known, scaled)
        if known == CHANNEL_RANGE:
            store.put(names, INPUT_RANGE, np.array(float(scaled.max())))
