from __future__ import annotations

import dataclasses
from pathlib import Path

import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import Linear, find_linear
from optc.ir.pipeline.base import PassContext
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.numerics.statistics import (
    CHANNEL_MEAN,
    CHANNEL_RANGE,
    INPUT_HESSIAN,
    INPUT_HISTOGRAM,
)
from optc.passes.quantize.calibrate import Calibrate, input_range, note_input_range
from optc.proof.reference.calibration import CalibrationStore, calibration_of, find_statistics
from optc.proof.reference.text import digest_text
from tests.support.dense_models import V, dense_model
from tests.support.letters import letters_folder
from tests.support.pipelines import pipeline_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a tokenizer of a token a letter, and a text."""
    return letters_folder(tmp_path, 140)


def _pass(folder: Path, **options: object) -> Calibrate:
    return Calibrate(
        text=str(folder / "text.txt"),
        folder=str(folder),
        windows=3,
        window_tokens=16,
        **options,  # type: ignore[arg-type]
    )


def test_every_linear_layer_gets_the_range_of_its_input(folder: Path) -> None:
    assert V > 31
    model = dense_model(2)
    report = _pass(folder).run(model)
    linears = [linear for node in model.graph if (linear := find_linear(node))]
    assert report.count == len(linears) > 0
    assert report.facts["tokens"] == 3 * 16
    ranges = [input_range(calibration_of(model), one) for one in linears]
    assert min(known for known in ranges if known is not None) > 0
    assert None not in ranges
    assert (
        max(known for known in ranges if known is not None)
        == report.facts["largest_input"]["magnitude"]
    )


def test_without_a_text_every_layer_has_a_range_and_is_counted(folder: Path) -> None:
    model = dense_model(2)
    report = _pass(folder).without_text(model, PassContext())
    linears = [linear for node in model.graph if (linear := find_linear(node))]
    assert report.details == {"linear layer, not calibrated": len(linears)}
    assert {input_range(calibration_of(model), one) for one in linears} == {1.0}


def test_what_was_measured_is_in_the_report_by_its_digest(folder: Path) -> None:
    digests = set()
    for windows in (3, 3, 2):
        model = dense_model(1)
        one = dataclasses.replace(_pass(folder), windows=windows)
        digests.add(one.run(model).facts["statistics_sha256"])
        assert calibration_of(model).digest() in digests
    assert len(digests) == 2


def test_a_weight_of_two_layers_has_the_larger_range(folder: Path) -> None:
    model, store = dense_model(1), CalibrationStore()
    linear = next(one for node in model.graph if (one := find_linear(node)))
    assert input_range(store, linear) is None
    for magnitude in (2.0, 5.0, 3.0):
        note_input_range(store, linear, magnitude)
    assert input_range(store, linear) == 5.0


def test_layers_of_one_input_have_one_range(folder: Path) -> None:
    model = dense_model(1)
    _pass(folder).run(model)
    by_input: dict[str, set[float | None]] = {}
    for node in model.graph:
        linear = find_linear(node)
        if linear is not None:
            known = input_range(calibration_of(model), linear)
            by_input.setdefault(str(linear.x.name), set()).add(known)
    assert all(len(found) == 1 for found in by_input.values())


def test_hessians_are_kept_once_for_all_layers_of_an_input(folder: Path) -> None:
    plain, model = dense_model(2), dense_model(2)
    ranges = _pass(folder).run(plain).facts
    report = _pass(folder, hessians=True).run(model)
    assert report.facts["largest_input"] == ranges["largest_input"]
    assert report.facts["statistics_sha256"] != ranges["statistics_sha256"]
    store, by_input = calibration_of(model), dict[str, list[object]]()
    for node in model.graph:
        if (linear := find_linear(node)) is None:
            continue
        (found,) = {
            id(array): array for array in find_statistics(store, linear, INPUT_HESSIAN)
        }.values()
        assert found.shape == (linear.weight.rows_shape[1],) * 2
        assert found.diagonal().max() <= (input_range(store, linear) or 0) ** 2 * 1.0001
        by_input.setdefault(str(linear.x.name), []).append(found)
    assert max(map(len, by_input.values())) > 1
    assert all(one is arrays[0] for arrays in by_input.values() for one in arrays)
    assert not find_statistics(calibration_of(plain), linear_of_head(plain), INPUT_HESSIAN)


def test_channels_are_kept_for_every_layer(folder: Path) -> None:
    plain, model = dense_model(2), dense_model(2)
    _pass(folder).run(plain)
    _pass(folder, channels=True).run(model)
    for linear in [one for node in model.graph if (one := find_linear(node))]:
        (mean,), (largest,) = (
            {id(a): a for a in find_statistics(calibration_of(model), linear, name)}.values()
            for name in (CHANNEL_MEAN, CHANNEL_RANGE)
        )
        assert mean.shape == largest.shape == (linear.weight.rows_shape[1],)
        assert (mean <= largest).all()
        assert largest.max() == input_range(calibration_of(model), linear)
    assert not find_statistics(calibration_of(plain), linear_of_head(plain), CHANNEL_MEAN)


def linear_of_head(model: ir.Model) -> Linear:
    return [linear for node in model.graph if (linear := find_linear(node))][-1]


def test_it_runs_on_the_dense_form_only(folder: Path) -> None:
    model = dense_model(1)
    pipeline_of("kv-cache").run(model)
    with pytest.raises(InputError, match="calibrate takes the dense form, and is given the ragged"):
        Pipeline((_pass(folder),)).run(model)


def test_another_text_than_recorded_is_refused(folder: Path) -> None:
    digest = digest_text(folder / "text.txt")
    _pass(folder, sha256=digest).run(dense_model(1))
    with pytest.raises(InputError, match="not that of the recipe's sha256"):
        _pass(folder, sha256="0" * 64).run(dense_model(1))


def test_paths_are_not_recorded(folder: Path) -> None:
    assert _pass(folder).spec() == "calibrate{windows=3,window_tokens=16}"


@pytest.mark.parametrize("name", ["text.txt", "config.json", "tokenizer.json"])
def test_missing_files_are_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(InputError, match=name):
        _pass(folder).run(dense_model(1))


@pytest.mark.parametrize("name", ["percentile", "mse", "entropy"])
def test_other_ranges_are_within_the_largest_magnitude(folder: Path, name: str) -> None:
    plain, model = dense_model(1), dense_model(1)
    _pass(folder).run(plain)
    _pass(folder, ranges=name).run(model)
    linears = ([x for n in m.graph if (x := find_linear(n))] for m in (model, plain))
    for one, other in zip(*linears, strict=True):
        mine = input_range(calibration_of(model), one)
        largest = input_range(calibration_of(plain), other)
        assert mine is not None
        assert largest is not None
        assert 0 < mine <= largest
        (found,) = find_statistics(calibration_of(model), one, INPUT_HISTOGRAM)[:1]
        assert found.shape == (2049,)
        assert found[-1] / 2 <= largest < found[-1]


def test_a_range_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match=r"pass calibrate: ranges=median is not possible \(one of"):
        Calibrate(ranges="median")
