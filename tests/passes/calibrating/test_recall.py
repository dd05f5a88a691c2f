"""Calibrations that are found again give the same model, to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.pipeline.base import Pass, PassContext, PassReport
from optc.ir.weights import LazyWeight, as_lazy
from optc.passes.calibrating.reads_text import ReadsText
from optc.passes.calibrating.recall import Recall, calibration_key
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.propagate import stages
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import CalibrationStore, calibration_of
from optc.proof.reference.calibration_cache import cache_at
from tests.support.dense_models import dense_model

INT4 = QuantizeWeights(bits=4, group_size=32, symmetric=False, method="gptq")


def run(one: ReadsText, later: Pass = INT4) -> tuple[PassReport, str, list[np.ndarray]]:
    """Report, digest of the statistics and weights."""
    model = dense_model(1)
    report = one.run(model, PassContext(later=(later,)))
    values = model.graph.initializers.values()
    weights = [np.asarray(v.const_value.numpy()) for v in values if v.const_value is not None]
    return report, calibration_of(model).digest(), weights


@pytest.fixture(autouse=True)
def every_layer_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "TOKENS_PER_INPUT", 1)


@pytest.fixture(params=[Calibrate(hessians=True), PropagateErrors()], ids=lambda one: one.name)
def one(request: pytest.FixtureRequest, tmp_path: Path) -> ReadsText:
    """The passes, of a model without a tokenizer."""
    return replace(
        request.param,
        windows=8,
        window_tokens=32,
        folder=str(tmp_path),
        cache=str(tmp_path / "cache"),
    )


def test_the_second_run_is_the_first_to_the_bit(one: ReadsText, tmp_path: Path) -> None:
    plain = run(replace(one, cache=""))
    first, second = run(one), run(one)
    assert "from_cache" not in first[0].facts
    assert second[0].facts.pop("from_cache")
    for found in (first, second):
        assert (found[0], found[1]) == (plain[0], plain[1])
        for mine, theirs in zip(found[2], plain[2], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_other_windows_are_another_calibration(one: ReadsText, tmp_path: Path) -> None:
    run(one)
    assert "from_cache" not in run(replace(one, windows=9))[0].facts
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_errors_depend_on_how_weights_are_quantized_later(tmp_path: Path) -> None:
    one = PropagateErrors(
        windows=8, window_tokens=32, folder=str(tmp_path), cache=str(tmp_path / "cache")
    )
    run(one)
    assert "from_cache" not in run(one, replace(INT4, method="round"))[0].facts


def test_a_damaged_entry_is_computed_again_and_told(one: ReadsText, tmp_path: Path) -> None:
    first = run(one)
    (entry,) = (tmp_path / "cache").iterdir()
    (entry / "0.npy").write_bytes(b"no array")
    again = run(one)
    assert again[1] == first[1]
    assert again[0].warnings[-1] == (
        f"the calibration in {tmp_path / 'cache'} was damaged: computed again"
    )
    assert run(one)[0].facts["from_cache"]


def test_the_key_depends_on_weights_graph_tokens_and_specs() -> None:
    tokens = np.zeros((2, 4), np.int32)

    def key(model: ir.Model, tokens: np.ndarray = tokens, spec: str = "a") -> str:
        return calibration_key(model, tokens, CalibrationStore(), spec)

    model, weight = dense_model(1), dense_model(1)
    assert key(model) == key(dense_model(1))
    value = next(v for v in weight.graph.initializers.values() if v.const_value is not None)
    value.const_value = ir.tensor(np.asarray(value.const_value.numpy()) * 2, name=value.name)
    graph = dense_model(1)
    node = next(n for n in graph.graph if "num_heads" in n.attributes)
    node.attributes["num_heads"] = ir.AttrInt64("num_heads", 7)
    keys = {
        key(model),
        key(weight),
        key(graph),
        key(dense_model(2)),
        key(model, tokens + 1),
        key(model, spec="b"),
    }
    assert len(keys) == 6


def test_each_byte_of_each_initializer_is_in_the_key() -> None:
    """Of lazy weights and of those in memory, whatever else stays: else an old calibration would
    be taken for that of the new weights."""

    def key(changed: str = "", row: int = 0) -> str:
        model = dense_model(1)
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            if name != changed or tensor is None:
                continue
            lazy = isinstance(tensor, LazyWeight)
            array = np.array(tensor.read_rows(0, tensor.rows_shape[0]) if lazy else tensor.numpy())
            array[row] += 1
            plain = ir.tensor(array, name=name)
            turned = lazy and tensor.transposed
            value.const_value = as_lazy(plain, transposed=turned) if lazy else plain
        return calibration_key(model, np.zeros((1, 4), np.int32), CalibrationStore(), "a")

    initializers = dense_model(1).graph.initializers
    names = [n for n, value in initializers.items() if value.shape and value.shape.numpy()[0] > 1]
    assert any(isinstance(initializers[name].const_value, LazyWeight) for name in names)
    keys = {key(name, row) for name in names for row in (0, -1)}
    assert len(keys) == 2 * len(names)
    assert key() not in keys
    assert key() == key("no such weight")


def test_only_the_whole_is_kept_once_it_is_there(one: ReadsText, tmp_path: Path) -> None:
    """Its parts would be there beside it for ever."""
    run(one)
    cache = cache_at(str(tmp_path / "cache"))
    assert len(list(cache.keys(""))) == 1


def test_parts_go_once_the_whole_is_kept_and_only_those_of_this_calibration(
    tmp_path: Path,
) -> None:
    one, other = (Recall(str(tmp_path), key) for key in ("a" * 64, "b" * 64))
    other.parts().value("first", lambda: 7)
    (kept,) = cache_at(str(tmp_path)).keys("")

    def compute() -> PassReport:
        parts = one.parts()
        assert (parts.value("first", lambda: 1), parts.value("second", lambda: 2)) == (1, 2)
        assert len(list(cache_at(str(tmp_path)).keys(""))) == 3, "who is stopped now goes on here"
        return PassReport(details={"weight": 2})

    report = one.run(CalibrationStore(), compute)
    assert set(cache_at(str(tmp_path)).keys("")) == {kept, "a" * 64}
    again = one.run(CalibrationStore(), compute)
    assert again.details == report.details
    assert again.facts == {"from_cache": True}


def of_two_rows(value: float) -> np.ndarray:
    return np.full(2, value, np.float32)


def test_a_part_that_is_kept_is_not_computed_again(tmp_path: Path) -> None:
    parts = Recall(str(tmp_path), "a" * 64).parts()
    assert [parts.value("first", lambda n=n: {"n": n}) for n in (1, 2)] == [{"n": 1}, {"n": 1}]
    assert parts.found == 1
    calls = []
    for number in (3.0, 4.0):
        store = CalibrationStore()

        def compute(store: CalibrationStore = store, number: float = number) -> None:
            calls.append(number)
            store.put(("w",), INPUT_HESSIAN, of_two_rows(number))

        parts.statistics("sums", store, compute)
        np.testing.assert_array_equal(store.find("w", INPUT_HESSIAN), of_two_rows(3))
    assert (calls, parts.found) == ([3.0], 2)


def test_a_part_that_is_damaged_is_computed_again(tmp_path: Path) -> None:
    parts = Recall(str(tmp_path), "a" * 64).parts()
    parts.value("first", lambda: 1)
    (entry,) = tmp_path.iterdir()
    for file in entry.iterdir():
        file.write_bytes(b"{")
    assert parts.value("first", lambda: 2) == 2
    assert parts.found == 0
    assert parts.value("first", lambda: 3) == 2


def test_without_a_folder_nothing_is_kept() -> None:
    parts = Recall("", "a" * 64).parts()
    assert [parts.value("first", lambda: 1), parts.value("first", lambda: 2)] == [1, 2]
    done: list[str] = []
    for name in ("a", "b"):
        parts.statistics("sums", CalibrationStore(), lambda name=name: done.append(name))
    assert (done, parts.found) == (["a", "b"], 0)
    parts.clear()
    report = PassReport(details={"weight": 2})
    assert Recall("", "a" * 64).run(CalibrationStore(), lambda: report) is report
