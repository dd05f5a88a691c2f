"""Rows that were rounded before are found again: by tensor, by grid, and in merged layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import Linear, find_linear, merge_linears
from optc.passes.numerics.affine import quantize_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.kept_rows import find_rows, is_left, keep_rows, leave
from optc.proof.reference.calibration import CalibrationStore
from tests.support.dense_models import dense_model

SCHEMES = [Scheme(8, 0, True), Scheme(4, 16, False), Scheme(4, 16, False, True)]


def linears(model: ir.Model) -> list[Linear]:
    found = (find_linear(node) for node in model.graph)
    return [linear for linear in found if linear is not None]


def rows_of(linear: Linear) -> np.ndarray:
    return np.asarray(linear.weight.read_rows(0, linear.weight.rows_shape[0]), np.float32)


@pytest.mark.parametrize("memory", [1 << 20, 0], ids=["memory", "disk"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=[scheme.label for scheme in SCHEMES])
def test_rows_of_merged_layers_are_those_of_their_parts(scheme: Scheme, memory: int) -> None:
    model, store = dense_model(1), CalibrationStore(memory_bytes=memory)
    parts = linears(model)[:3]
    tiles = [quantize_rows(rows_of(linear), scheme) for linear in parts]
    for linear, tile in zip(parts, tiles, strict=True):
        keep_rows(store, linear, scheme, tile)
    nodes, _ = merge_linears(model.graph, parts)
    merged = find_linear(nodes[0])
    assert merged is not None
    found = find_rows(store, merged, scheme, "merged")
    assert found is not None
    total = sum(len(tile.values) for tile in tiles)
    assert (found.rows, found.bits, found.group_size) == (total, scheme.bits, scheme.group_size)
    edge = len(tiles[0].values)
    for start, stop in ((0, total), (edge - 1, edge + 1), (edge, total), (total - 1, total)):
        for got, *wanted in zip(found.read(start, stop), *tiles, strict=True):
            if got is None:
                assert all(part is None for part in wanted)
            else:
                np.testing.assert_array_equal(got, np.concatenate(wanted)[start:stop])


def test_another_grid_or_a_tensor_that_was_not_kept_is_not_found() -> None:
    model, store = dense_model(1), CalibrationStore()
    first, second = linears(model)[:2]
    keep_rows(store, first, SCHEMES[0], quantize_rows(rows_of(first), SCHEMES[0]))
    assert find_rows(store, first, SCHEMES[0], "w") is not None
    assert find_rows(store, first, SCHEMES[1], "w") is None
    assert find_rows(store, second, SCHEMES[0], "w") is None
    nodes, _ = merge_linears(model.graph, [first, second])
    merged = find_linear(nodes[0])
    assert merged is not None
    assert find_rows(store, merged, SCHEMES[0], "merged") is None


def test_what_was_kept_is_found_whether_zeros_were_kept_or_not() -> None:
    """A merged weight keeps its zeros if one of its tensors was pruned."""
    model, store = dense_model(1), CalibrationStore()
    (first, *_), scheme = linears(model), SCHEMES[2]
    keep_rows(store, first, scheme, quantize_rows(rows_of(first), scheme))
    assert find_rows(store, first, replace(scheme, zeros=True), "w") is not None


def test_merged_layers_are_left_where_all_parts_are() -> None:
    model, store = dense_model(1), CalibrationStore()
    first, second, third = linears(model)[:3]
    leave(store, [first.name, second.name])
    assert [is_left(store, one) for one in (first, second, third)] == [True, True, False]
    nodes, _ = merge_linears(model.graph, [first, second, third])
    merged = find_linear(nodes[0])
    assert merged is not None
    assert not is_left(store, merged)
    leave(store, [third.name])
    assert is_left(store, merged)
