"""`smooth` in a pipeline: the function stays, what is quantized later loses less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.forms.decoder import Dense
from optc.ir.linear import find_linear
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import Pass, PassContext
from optc.passes.numerics.statistics import CHANNEL_MEAN, CHANNEL_RANGE, INPUT_HESSIAN
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.smooth.smooth import Smooth
from optc.proof.reference.calibration import calibration_of
from tests.support.dense_models import dense_model
from tests.support.ir_text import Array, f32, model_of, nodes_text
from tests.support.letters import letters_folder
from tests.support.outliers import INT4, INT8, after, decibels, planted
from tests.support.pipelines import pipeline_of
from tests.support.ragged import run

AWQ = {"smooth": {"method": "awq"}}
GPTQ = {"quantize-weights": INT4["quantize-weights"] | {"method": "gptq"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return letters_folder(tmp_path)


@pytest.mark.parametrize("smooth", ["smooth", {"smooth": {"alpha": 0.8}}])
def test_the_function_stays(smooth: Any, folder: Path) -> None:
    assert decibels(after(planted(), folder, "calibrate", smooth)) > 100


def test_smoothquant_undoes_outliers_of_activations(folder: Path) -> None:
    plain = decibels(after(planted(), folder, INT8))
    smooth = decibels(after(planted(), folder, "calibrate", "smooth", INT8))
    without = decibels(after(dense_model(2), folder, INT8))
    assert plain < without - 6
    assert smooth > without - 2


@pytest.mark.parametrize("method", ["round", "gptq"])
def test_awq_undoes_outliers_under_both_methods(method: str, folder: Path) -> None:
    grid = GPTQ if method == "gptq" else INT4
    plain = decibels(after(planted(), folder, "calibrate", grid))
    awq = decibels(after(planted(), folder, "calibrate", AWQ, grid))
    assert awq > plain + (2 if method == "round" else 4)


def test_errors_are_propagated_through_smoothed_weights(folder: Path) -> None:
    plain = decibels(after(planted(), folder, "propagate-errors", GPTQ))
    awq = decibels(after(planted(), folder, "calibrate", AWQ, "propagate-errors", GPTQ))
    assert awq > plain + 5


NODES = """
    n = RMSNormalization <axis: int = -1> (x, gamma)
    g = MatMul (n, gate)
    u = MatMul (n, up)
    s = Sigmoid (g)
    p = Mul (s, u)
    h = MatMul (p, down)
    y = MatMul (h, head)"""


def layers() -> tuple[ir.Model, dict[str, Array]]:
    """Two places, statistics of whose inputs are made up."""
    shapes = {"gate": (8, 6), "up": (8, 6), "down": (6, 8), "head": (8, 5)}
    weights = {name: f32(*shape) for name, shape in shapes.items()} | {"gamma": f32(8)}
    model = model_of("g (float[1,S,8] x) => (float[1,S,5] y)", NODES, weights)
    store = calibration_of(model)
    for names, size in ((["gate", "up"], 8), (["down"], 6)):
        store.put(names, CHANNEL_RANGE, np.exp(f32(size)).astype(np.float64))
    return model, weights


def test_scales_move_between_weights_and_nodes_stay() -> None:
    model, weights = layers()
    text, feeds = nodes_text(model), {"x": f32(1, 7, 8)}
    before = run(model, feeds)[0]
    report = Smooth().run(model)
    assert report.details == {"product": 1, "norm": 1}
    assert report.skipped == ["MatMul: the head's input stays as it is"]
    assert nodes_text(model) == text
    np.testing.assert_allclose(run(model, feeds)[0], before, rtol=1e-4, atol=1e-5)
    # down's first, for the rows of up are those that the norm's scale sees
    s = np.sqrt(np.exp(f32(6)) / np.abs(weights["down"]).max(axis=1))
    s /= np.exp(np.log(s).mean())
    up = weights["up"] / s
    t = np.sqrt(
        np.exp(f32(8)) / np.maximum(np.abs(weights["gate"]).max(axis=1), np.abs(up).max(axis=1))
    )
    t /= np.exp(np.log(t).mean())
    want = {
        "down": weights["down"] * s[:, None],
        "up": up * t[:, None],
        "gate": weights["gate"] * t[:, None],
        "gamma": weights["gamma"] / t,
        "head": weights["head"],
    }
    for name, array in want.items():
        found = model.graph.initializers[name].const_value
        assert found is not None
        np.testing.assert_allclose(found.numpy(), array, rtol=1e-5, err_msg=name)


def test_what_awq_chose_is_in_the_report() -> None:
    model, _ = layers()
    store = calibration_of(model)
    for names, size in ((["gate", "up"], 8), (["down"], 6)):
        store.put(names, CHANNEL_MEAN, np.exp(f32(size)).astype(np.float64))
        store.put(names, INPUT_HESSIAN, np.diag(np.exp(2 * f32(size)).astype(np.float64)))
    report = Smooth(method="awq").run(model, PassContext(later=(QuantizeWeights(bits=8),)))
    assert [one["weight"] for one in report.facts["awq"]] == ["down", "gate"]
    assert all(0 <= one["alpha"] <= 1 and one["loss"] <= 1 for one in report.facts["awq"])
    assert report.facts["statistics_sha256"] == calibration_of(model).digest()


def test_clones_keep_their_statistics() -> None:
    model, _ = layers()
    clone = model.clone()
    digest = calibration_of(clone).digest()
    Smooth().run(model)
    assert calibration_of(clone).digest() == digest != calibration_of(model).digest()


def test_without_statistics_it_says_what_is_missing() -> None:
    with pytest.raises(InputError) as caught:
        Smooth().run(dense_model(1))
    assert str(caught.value) == (
        "pass smooth, l0.down: nothing is known of the channels of its inputs "
        "(put calibrate: {channels: true} before it)"
    )
    with pytest.raises(InputError, match="channels: true, hessians: true"):
        Smooth(method="awq").run(dense_model(1), PassContext(later=(QuantizeWeights(),)))


def test_awq_needs_the_grid_that_comes_later() -> None:
    with pytest.raises(InputError) as caught:
        Smooth(method="awq").run(dense_model(1))
    assert str(caught.value) == (
        "pass smooth: no quantize-weights comes after it, whose grid awq needs "
        "(put quantize-weights behind it, or set method=smoothquant)"
    )


def test_adapters_are_refused() -> None:
    adapters: Pass = registry.passes()["adapters"].from_options({"max": 1, "rank": 1})
    with pytest.raises(InputError) as caught:
        Smooth().run(dense_model(1), PassContext(later=(adapters,)))
    assert str(caught.value) == (
        "pass smooth: adapters would read other inputs than they were trained for "
        "(leave out --adapters, or take a recipe without this pass)"
    )


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ("smooth", "smooth must come after calibrate"),
        ("calibrate,fuse-qkv,smooth", "smooth must come before fuse-qkv"),
        ("calibrate,fuse-gate-up,smooth", "smooth must come before fuse-gate-up"),
        ("calibrate,propagate-errors,smooth", "smooth must come before propagate-errors"),
        ("calibrate,quantize-weights,smooth", "smooth must come before quantize-weights"),
        ("calibrate,kv-cache,smooth", "smooth takes the dense form, and is given the ragged step"),
        ("calibrate,smooth,rotate", "rotate must come before calibrate; rotate must come before"),
    ],
)
def test_another_order_is_refused(order: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        pipeline_of(order).validate(Dense)


@pytest.mark.parametrize("options", [{"alpha": 1.5}, {"alpha": -0.1}, {"method": "spin"}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is not"):
        Smooth(**options)


def test_weights_stay_lazy() -> None:
    model, _ = layers()
    Smooth().run(model)
    (down,) = [n for n in model.graph if (f := find_linear(n)) and f.name == "down"]
    linear = find_linear(down)
    assert linear is not None
    whole = linear.weight.read_rows(0, 8)
    np.testing.assert_array_equal(linear.weight.read_rows(3, 5), whole[3:5])
