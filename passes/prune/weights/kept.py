"""Pruned weights in the calibration store, by original tensor, and as weights of the model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.linear import Linear, mark_pruned, sources
from optc.ir.weights import LazyWeight, concatenate_rows
from optc.passes.prune.weights.masks import Float32
from optc.proof.reference.calibration import CalibrationStore


def statistic_of(spec: str) -> str:
    """Name of the rows float32 [N, K] that a pass with these options has pruned."""
    return f"pruned rows: {spec}"


def keep_pruned(store: CalibrationStore, linear: Linear, statistic: str, rows: Float32) -> None:
    """Keep all rows of the pruned weight of ``linear``."""
    for source in sources([linear]):
        store.put([source.name], statistic, rows[source.start : source.stop])


def find_pruned(store: CalibrationStore, linear: Linear, statistic: str) -> LazyWeight | None:
    """The pruned weight of ``linear``, read from the store on demand; None if it is not kept."""
    parts = [_weight(store, source.name, statistic) for source in sources([linear])]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    return concatenate_rows(found, linear.name) if len(found) > 1 else found[0]


def set_pruned(linear: Linear, weight: LazyWeight) -> None:
    """Put a pruned weight into the graph."""
    linear.initializer.const_value = weight
    mark_pruned(linear.initializer)


def _weight(store: CalibrationStore, name: str, statistic: str) -> LazyWeight | None:
    kept = store.find(name, statistic)
    if kept is None:
        return None

    def read(start: int, stop: int) -> Float32:
        rows = store.find(name, statistic)
        if rows is None:
            raise KeyError(name)
        return np.asarray(rows[start:stop])

    return LazyWeight(read, kept.shape, ir.DataType.FLOAT, name, transposed=True)
