"""Layers that stay float: what each loses is stated by the test."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.forms.batched import BatchedTensors
from optc.ir.pipeline.base import PassReport
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.general.float_layers import choose_float_layers, expected_flips, losses
from optc.passes.general.quantize_convolutions import QuantizeConvolutions
from optc.proof.reference.tensor_samples import give_samples
from tests.support.ir_text import f32, model_of

#: Added to every output by the layers that are rounded; outputs are at most 1.
LOST = {"a": 0.01, "b": 0.5, "c": 0.1, "d": 0.02}
SAMPLES = [{"x": np.array([[0.5, -1.0, 1.0]], np.float32)}] * 2


def summed() -> ir.Model:
    body = "a = Add (x, wa)\n b = Add (a, wb)\n c = Add (b, wc)\n d = Add (c, wd)"
    zeros = {f"w{name}": np.zeros(1, np.float32) for name in LOST}
    return model_of("g (float[N,3] x) => (float[N,3] d)", body, zeros)


def write(model: ir.Model, left: Collection[str]) -> None:
    for name, lost in LOST.items():
        if name not in left:
            value = model.graph.initializers[f"w{name}"]
            value.const_value = ir.tensor(np.full(1, lost, np.float32), name=f"w{name}")


@pytest.mark.parametrize(
    ("bounds", "names", "held"),
    [
        ({}, (), True),
        ({"inference_speedup": 2.0}, (), True),  # which outputs do not tell
        ({"output_error": 0.8}, (), True),  # 0.63 is within four fifths
        ({"output_error": 0.7}, ("b",), True),
        ({"output_error": 0.15}, ("b", "c"), True),
        ({"output_error": 0.001}, (), False),  # the least of them alone breaks it
        ({"sqnr_db": 25.0}, ("b", "c"), True),
        ({"class_agreement": 1.0}, (), True),  # all outputs move alike
    ],
)
def test_the_fewest_layers_stay_float(
    bounds: Mapping[str, float], names: tuple[str, ...], held: bool
) -> None:
    found = choose_float_layers(summed(), write, list(LOST), SAMPLES, bounds)
    assert (found.names, found.held) == (names, held)


def test_losses_are_those_of_plain_formulas() -> None:
    wanted, ours = f32(6, 5), f32(6, 5) + 0.3 * f32(6, 5, seed=4)
    found = losses([[ours[:2]], [ours[2:]]], [[wanted[:2]], [wanted[2:]]])
    a, b = ours.astype(np.float64), wanted.astype(np.float64)
    assert found["sqnr_db"] == pytest.approx(((a - b) ** 2).sum() / (b**2).sum())
    assert found["output_error"] == pytest.approx(np.abs(a - b).max() / np.abs(b).max())
    rows = [x @ y / np.sqrt((x @ x) * (y @ y)) for x, y in zip(a, b, strict=True)]
    assert found["cosine_mean"] == pytest.approx(1 - np.mean(rows))
    agreed = np.mean(a.argmax(1) == b.argmax(1))
    assert found["top1_agreement"] == pytest.approx(1 - agreed)
    assert found["class_agreement"] == max(1 - agreed, expected_flips(a, b))
    many = f32(300, 5)
    far = many + 0.3 * f32(300, 5, seed=5)
    counted = losses([[far]], [[many]])["class_agreement"]
    assert counted == pytest.approx(np.mean(far.argmax(1) != many.argmax(1)))
    for one in (np.array([1.0]), np.array([1.0, 2.0])):  # of no rows
        assert set(losses([[one]], [[2 * one]])) == {"sqnr_db", "output_error"}


def test_expected_flips_are_those_of_many_draws() -> None:
    """Noise of many draws changes as many classes as one draw lets expect."""
    source = np.random.default_rng(0)
    wanted = source.normal(size=(400, 2))
    noise = source.normal(0, 0.3, (200, 400, 2))
    counted = np.mean((wanted + noise).argmax(2) != wanted.argmax(1))
    assert expected_flips(wanted + noise[0], wanted) == pytest.approx(counted, rel=0.15)
    assert expected_flips(wanted, wanted) == 0
    scores = np.exp(wanted) / np.exp(wanted).sum(1, keepdims=True)
    drawn = np.exp(wanted + noise[0])
    drawn /= drawn.sum(1, keepdims=True)
    assert expected_flips(drawn, scores) == pytest.approx(expected_flips(wanted + noise[0], wanted))


def test_the_pass_leaves_the_layer_float_that_loses_most() -> None:
    """One channel of the middle value is a thousand times the others."""
    scales = np.ones((6, 1, 1, 1), np.float32)
    scales[0] = 1000
    weights: dict[str, np.ndarray] = {
        "a": f32(6, 4, 3, 3) * scales,
        "b": f32(6, 6, 3, 3, seed=2) / scales[:, 0],
    }
    weights["c"] = f32(6, 6, 1, 1, seed=3)
    body = "m = Conv (x, a)\n k = Conv (m, b)\n y = Conv (k, c)"
    text = "g (float[N,4,8,8] x) => (float[N,6,4,4] y)"

    def made(bound: float, **options: Any) -> tuple[list[str], PassReport]:
        model = model_of(text, body, weights)
        BatchedTensors.describe(model).attach(model)
        give_samples(model, [{"x": f32(4, 4, 8, 8, seed=seed)} for seed in (3, 4)])
        one = QuantizeConvolutions(bits=7, **options)  # of 8 some CPUs lose sums, too
        (record,) = Pipeline((one,)).run(model, bounds={"sqnr_db": bound})
        return [node.op_type for node in model.graph], record.report

    kinds, report = made(25.0)
    assert isinstance(report.facts["float"], list)
    assert "k" in report.facts["float"]
    assert 0 < len(report.facts["float"]) < 3
    assert "QuantizeLinear" in kinds, "others are rounded"
    assert "float" not in made(25.0, fallback="none")[1].facts
    assert "float" not in made(-20.0)[1].facts
    rounded, report = made(200.0)  # no rounded layer holds it: all are, and the gates will say so
    assert "float" not in report.facts
    assert rounded.count("QuantizeLinear") > kinds.count("QuantizeLinear")
    (warning,) = report.warnings
    assert warning.startswith("the gates do not hold over the samples as soon as one layer")
