"""Rows of original tensors, also those that were put in another order, twice or beside others."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from optc.ir.sources import Source, side_by_side, sources_metadata, sources_of, taken_rows
from optc.runtime.executable.row_ranges import ranges_of


def value(name: str, sources: tuple[Source, ...] = ()) -> ir.Value:
    made = ir.Value(name=name)
    if sources:
        made.metadata_props.update(sources_metadata(sources))
    return made


def test_rows_in_another_order_name_their_tensor() -> None:
    order = np.array([4, 2, 0])
    (taken,) = taken_rows(value("w"), 6, order, "w.q")
    assert taken == Source("w.q", 0, 3, "w", 6, ((4, -2, 3),))
    assert sources_of(value("w.q", (taken,)), 3) == (taken,)


def test_an_order_of_an_order_is_of_the_tensor() -> None:
    first = taken_rows(value("w"), 6, np.array([5, 1, 3, 0]), "w.q")
    (second,) = taken_rows(value("w.q", first), 4, np.array([3, 0]), "w.q.k")
    assert second == Source("w.q.k", 0, 2, "w", 6, ranges_of(np.array([0, 5])))


def test_of_several_tensors_nothing_is_said() -> None:
    merged = value("m", (Source("u", 0, 2), Source("v", 2, 4)))
    assert taken_rows(merged, 4, np.array([3, 0]), "m.q") == ()


def test_side_by_side_keeps_the_order() -> None:
    taken = taken_rows(value("w"), 4, np.array([1, 0]), "w.q")
    both = side_by_side([(value("u"), 3), (value("w.q", taken), 2)])
    assert both == (Source("u", 0, 3), Source("w.q", 3, 5, "w", 4, ((1, -1, 2),)))
