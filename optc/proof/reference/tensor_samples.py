"""Samples of a model of named tensors: what passes that calibrate run it over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

Array = npt.NDArray[Any]
#: Inputs by name.
Sample = Mapping[str, Array]
#: Where a model keeps its samples: beside the graph, never in a file.
_META_KEY = "optc.samples"


def give_samples(model: ir.Model, samples: Sequence[Sample]) -> None:
    """Let passes over ``model``, and over its clones, calibrate by ``samples``."""
    model.graph.meta[_META_KEY] = tuple(samples)


def samples_of(model: ir.Model) -> tuple[Sample, ...]:
    """The samples that were given; empty if there are none."""
    found = model.graph.meta.get(_META_KEY, ())
    if not isinstance(found, tuple):
        raise TypeError(f"{_META_KEY} is a {type(found).__name__}")
    return found
