"""Pruned weights lie in the store under the names of the original tensors."""

from __future__ import annotations

import numpy as np

from optc.ir.linear import find_linears, merge_linears
from optc.ir.weights import LazyWeight
from optc.passes.prune.weights.kept import find_pruned, keep_pruned, set_pruned, statistic_of
from optc.proof.reference.calibration import CalibrationStore
from tests.support.dense_models import dense_model

NAME = statistic_of("prune-weights")


def test_weights_are_read_from_the_store() -> None:
    store, (first, second, *_) = CalibrationStore(0), find_linears(dense_model(1))
    assert find_pruned(store, first, NAME) is None
    assert not first.pruned
    rows = np.arange(np.prod(first.weight.rows_shape), dtype=np.float32)
    keep_pruned(store, first, NAME, rows.reshape(first.weight.rows_shape))
    assert find_pruned(store, first, statistic_of("prune-weights{sparsity=0.6}")) is None
    weight = find_pruned(store, first, NAME)
    assert weight is not None
    set_pruned(first, weight)
    assert first.pruned
    assert not second.pruned
    tensor = first.initializer.const_value
    assert isinstance(tensor, LazyWeight)
    assert tensor.transposed
    np.testing.assert_array_equal(tensor.read_rows(3, 5), rows.reshape(tensor.rows_shape)[3:5])
    np.testing.assert_array_equal(tensor.numpy(), rows.reshape(tensor.rows_shape).T)


def test_a_merged_weight_takes_the_rows_of_its_tensors() -> None:
    model = dense_model(1)
    q, k, v = find_linears(model)[:3]
    nodes, _ = merge_linears(model.graph, [q, k, v])
    model.graph.insert_before(q.matmul, nodes)
    merged = next(one for one in find_linears(model) if "+" in one.name)
    store = CalibrationStore()
    rows = np.arange(np.prod(merged.weight.rows_shape), dtype=np.float32)
    rows = rows.reshape(merged.weight.rows_shape)
    keep_pruned(store, merged, NAME, rows)
    last, whole = (find_pruned(store, one, NAME) for one in (v, merged))
    assert last is not None
    assert whole is not None
    np.testing.assert_array_equal(last.numpy().T, rows[-len(rows) // 4 :])
    np.testing.assert_array_equal(whole.numpy().T, rows)
