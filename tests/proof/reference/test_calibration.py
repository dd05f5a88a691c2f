from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc.ir.linear import find_linear, merge_linears
from optc.proof.reference.calibration import (
    CalibrationStore,
    calibration_of,
    find_statistics,
    own_calibration,
    weights_of,
)
from tests.support.dense_models import dense_model


def test_arrays_come_back_as_they_were_put() -> None:
    store = CalibrationStore()
    arrays = [np.array(2.5), np.arange(6, dtype=np.float32).reshape(2, 3).T, np.zeros((0, 4))]
    for number, array in enumerate(arrays):
        store.put([f"w{number}"], "hessian", array)
    for number, array in enumerate(arrays):
        found = store.find(f"w{number}", "hessian")
        assert found is not None
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(found, array)
    assert store.find("w0", "range") is None
    assert store.find("w9", "hessian") is None


def test_what_is_kept_is_a_copy_that_cannot_be_written() -> None:
    store, array = CalibrationStore(), np.ones(3)
    store.put(["w"], "range", array)
    array[:] = 7
    found = store.find("w", "range")
    assert found is not None
    assert found.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 2


def test_arrays_beyond_the_bound_lie_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = CalibrationStore(memory_bytes=100)
    arrays = {f"w{n}": np.full(10, n, np.float64) for n in range(3)}  # 80 bytes each
    for name, array in arrays.items():
        store.put([name, f"{name}.too"], "range", array)
    assert [path.name for path in sorted(tmp_path.rglob("*.npy"))] == ["0.npy", "1.npy"]
    mapped = [isinstance(store.find(name, "range"), np.memmap) for name in arrays]
    assert mapped == [False, True, True]
    for name, array in arrays.items():
        np.testing.assert_array_equal(store.find(f"{name}.too", "range"), array)
    del store
    assert list(tmp_path.iterdir()) == []


def test_the_digest_is_of_content_and_not_of_order_or_place() -> None:
    first, second = CalibrationStore(), CalibrationStore(memory_bytes=0)
    first.put(["a"], "range", np.array(1.0))
    first.put(["b"], "range", np.array(2.0))
    second.put(["b"], "range", np.array(2.0))
    second.put(["a"], "range", np.array(1.0))
    assert first.digest() == second.digest()
    before = first.digest()
    for change in (np.array(3.0), np.array(1.0, np.float32), np.array([1.0])):
        first.put(["a"], "range", change)
        assert first.digest() != before
    first.put(["a"], "range", np.array(1.0))
    assert first.digest() == before


def test_statistics_are_told_by_weight_with_shape_and_type() -> None:
    store = CalibrationStore()
    store.put(["b", "a"], "hessian", np.zeros((2, 2), np.float32))
    told = [(one.weight, one.name, one.shape, one.dtype) for one in store.statistics()]
    assert told == [("a", "hessian", (2, 2), "<f4"), ("b", "hessian", (2, 2), "<f4")]


def test_merged_weights_find_the_statistics_of_their_parts() -> None:
    model = dense_model(1)
    parts = [one for node in model.graph if (one := find_linear(node)) and one.name[-1] in "qkv"]
    store = calibration_of(model)
    for part, value in zip(parts, (1.0, 5.0, 3.0), strict=True):
        store.put(weights_of(part), "range", np.array(value))
    nodes, _ = merge_linears(model.graph, parts)
    merged = find_linear(nodes[0])
    assert merged is not None
    assert weights_of(merged) == ["l0.q", "l0.k", "l0.v"]
    assert [float(a) for a in find_statistics(store, merged, "range")] == [1.0, 5.0, 3.0]
    assert find_statistics(store, merged, "hessian") == []


def test_a_clone_of_a_model_has_its_statistics() -> None:
    model = dense_model(1)
    calibration_of(model).put(["w"], "range", np.array(1.0))
    assert calibration_of(model.clone()).find("w", "range") is not None
    assert calibration_of(dense_model(1)).find("w", "range") is None


def test_a_copy_has_the_same_arrays_and_takes_others() -> None:
    model = dense_model(1)
    calibration_of(model).put(["w"], "range", np.ones(2))
    clone = model.clone()
    own = own_calibration(model)
    own.put(["w"], "range", np.zeros(2))
    assert calibration_of(model) is own
    found = [calibration_of(one).find("w", "range") for one in (model, clone)]
    assert [array.tolist() for array in found if array is not None] == [[0, 0], [1, 1]]


def test_a_copy_keeps_the_files_of_its_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = CalibrationStore(memory_bytes=0)
    store.put(["w"], "range", np.arange(3.0))
    copy = store.copy()
    del store
    copy.put(["v"], "range", np.arange(4.0))
    for name, size in (("w", 3), ("v", 4)):
        np.testing.assert_array_equal(copy.find(name, "range"), np.arange(size))
    del copy
    assert list(tmp_path.iterdir()) == []
