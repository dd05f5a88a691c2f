"""The parameters of the model's class out of an engine's weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from optc.engine_weights import EngineWeight
from optc.errors import UnsupportedError
from optc.export.names import biases_of, parameters_of
from optc.importer.skeleton import Skeleton
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import LazyWeight

#: A parameter by rows, on the grid that the engine has.
Weight = QuantizedRows | LazyWeight
#: Of experts: [E, N, K].
_STACK_AXES = 3
_HINT = "only weights that are still parameters of the model's class have an equivalent"


def read_parameters(weights: Mapping[str, EngineWeight], skeleton: Skeleton) -> dict[str, Weight]:
    """Every parameter of the class by name; of parameters that share memory the first one.

    Raises:
        UnsupportedError: The engine lacks one, or has weights that are none.
        ArtifactError: A weight has another shape than the config says.
    """
    shapes, found = skeleton.shapes, dict[str, Weight]()
    for name, weight in weights.items():
        names = parameters_of(name, shapes)
        biases = [] if names else biases_of(name, shapes)
        if biases:
            _add_biases(found, weight, biases, skeleton)
        elif names:
            _add(found, weight, names, skeleton)
        elif ".weight" in name:
            raise UnsupportedError("is no parameter of the model's class", where=name, hint=_HINT)
    missing = [n for n in shapes if n not in found and skeleton.tied.get(n) not in found]
    if missing:
        raise UnsupportedError(
            f"the engine has no weights for {len(missing)} parameters of the model's class",
            where=missing[0],
            hint=_HINT,
        )
    return found


def shape_of(weight: Weight) -> tuple[int, ...]:
    """By rows."""
    if isinstance(weight, QuantizedRows):
        return weight.rows, weight.columns
    return weight.rows_shape


def rows_between(weight: Weight, start: int, stop: int) -> Weight:
    """Rows ``start:stop`` of a weight."""
    if isinstance(weight, QuantizedRows):
        read = weight.read
        return replace(weight, read=lambda a, b: read(start + a, start + b), rows=stop - start)
    rows = weight.read_rows
    return LazyWeight(
        lambda a, b: rows(start + a, start + b),
        (stop - start, *weight.rows_shape[1:]),
        weight.dtype,
        weight.name or "",
    )


def _add(
    found: dict[str, Weight], weight: EngineWeight, names: list[str], skeleton: Skeleton
) -> None:
    shapes = [skeleton.shapes[name] for name in names]
    # rows of experts lie below each other
    experts = shapes[0][0] if len(shapes[0]) == _STACK_AXES else 1
    inner = shapes[0][-1:] if len(shapes[0]) > 1 else ()
    bounds = np.cumsum([0, *(math.prod(shape[: len(shape) - len(inner)]) for shape in shapes)])
    bounds = bounds.tolist()
    whole = weight.rows((bounds[-1], *inner), experts)
    for name, start, stop in zip(names, bounds, bounds[1:], strict=False):
        known = skeleton.tied.get(name, name)
        part = whole if len(names) == 1 else rows_between(whole, start, stop)
        before = found.setdefault(known, part)
        if isinstance(before, QuantizedRows) != isinstance(part, QuantizedRows):
            raise UnsupportedError(
                "is stored both quantized and in floats, of which a checkpoint takes one",
                where=known,
                hint="compile the model again with the embedding and the head in one form",
            )


def _add_biases(
    found: dict[str, Weight], weight: EngineWeight, names: list[str], skeleton: Skeleton
) -> None:
    """Biases of merged weights: zeros where the class has none."""
    sizes = [skeleton.shapes[name.removesuffix(".bias") + ".weight"][0] for name in names]
    bounds = np.cumsum([0, *sizes]).tolist()
    whole = weight.rows((bounds[-1],))
    for name, start, stop in zip(names, bounds, bounds[1:], strict=False):
        part = rows_between(whole, start, stop)
        if name in skeleton.shapes:
            found[name] = part
        elif isinstance(part, LazyWeight) and np.any(part.read_rows(0, stop - start)):
            raise UnsupportedError("the class has no such bias", where=name, hint=_HINT)
