"""Weights that a pass before `quantize-weights` has rounded, kept by original tensor.

Whoever rounds a weight in order to see what that does to the layers behind it keeps the result, so
that it is rounded once; and merged layers find the rows of each tensor that they are made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optc.ir.linear import Linear, sources
from optc.ir.quantized_rows import QuantizedRows, QuantizedTile, joined_tiles
from optc.passes.numerics.scheme import Scheme
from optc.proof.reference.calibration import CalibrationStore

_PARTS = QuantizedTile._fields
_LEFT = "rounded plainly"


def keep_rows(store: CalibrationStore, linear: Linear, scheme: Scheme, rows: QuantizedTile) -> None:
    """Keep all rows of the weight of ``linear``, rounded to the grid of ``scheme``."""
    for source in sources([linear]):
        for part, array in zip(_PARTS, rows, strict=True):
            if array is not None:
                kept = array[source.start : source.stop]
                store.put([source.name], _statistic(scheme, part), kept)


def leave(store: CalibrationStore, tensors: Sequence[str]) -> None:
    """Note that original tensors are to be rounded plainly: no calibration knows their inputs, on
    purpose."""
    store.put(tensors, _LEFT, np.zeros(0, np.int8))


def is_left(store: CalibrationStore, linear: Linear) -> bool:
    """True if all tensors of the weight of ``linear`` are left to plain rounding."""
    return all(store.find(one.name, _LEFT) is not None for one in sources([linear]))


def find_rows(
    store: CalibrationStore, linear: Linear, scheme: Scheme, name: str
) -> QuantizedRows | None:
    """The weight of ``linear`` as it was kept; None if one of its tensors was not, on this grid.

    Args:
        store: Where `keep_rows` kept it.
        linear: May be merged of several that were kept.
        scheme: The grid.
        name: Of the weight, for names of its parts.
    """
    parts = [_kept(store, source.name, scheme) for source in sources([linear])]
    tiles = [part for part in parts if part is not None]
    if len(tiles) < len(parts):
        return None
    bounds = np.cumsum([0, *(len(tile.values) for tile in tiles)])

    def read(start: int, stop: int) -> QuantizedTile:
        return joined_tiles(
            [
                _rows(tile, slice(max(start - low, 0), stop - low))
                for tile, low, high in zip(tiles, bounds, bounds[1:], strict=False)
                if start < high and low < stop
            ]
        )

    return QuantizedRows(
        read,
        int(bounds[-1]),
        linear.weight.rows_shape[1],
        scheme.bits,
        scheme.group_size,
        scheme.symmetric,
        name,
        scheme.integer_scales,
    )


def _kept(store: CalibrationStore, weight: str, scheme: Scheme) -> QuantizedTile | None:
    values, scales, zero_points, group_scales = (
        store.find(weight, _statistic(scheme, part)) for part in _PARTS
    )
    if values is None or scales is None:
        return None
    return QuantizedTile(values, scales, zero_points, group_scales)


def _rows(tile: QuantizedTile, rows: slice) -> QuantizedTile:
    zeros, integers = tile.zero_points, tile.group_scales
    return QuantizedTile(
        tile.values[rows],
        tile.scales[rows],
        None if zeros is None else zeros[rows],
        None if integers is None else integers[rows],
    )


def _statistic(scheme: Scheme, part: str) -> str:
    # a merged weight keeps its zeros if one of its parts does
    return f"{replace(scheme, zeros=False).label}: {part}"
