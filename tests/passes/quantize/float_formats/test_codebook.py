"""Weights stored in a format: the rewrite, and its numbers against `ml_dtypes` and exact search."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.float_formats.codebook import STORED
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import calibration_of
from tests.support import oracle
from tests.support.ir_text import Array, expected, f32, model_of, nodes_text
from tests.support.ragged import run

SIGNATURE = "g (float[S,128] x) => (float[S,6] y)"
NODES = """m = MatMul (x, w)
    a = Add (m, b)
    h = Mul (a, a)
    v = MatMul (h, u)
    y = MatMul (v, head)"""
NAMES = sorted(STORED)


def _model() -> tuple[ir.Model, dict[str, Array]]:
    weights = {"w": f32(128, 32), "b": f32(32), "u": f32(32, 40), "head": f32(40, 6)}
    weights["w"][:64, 3] = 0.0
    return model_of(SIGNATURE, NODES, weights), weights


def _stored(name: str, weight: Array) -> Array:
    """What a weight [K, N] stands for, in float64, by trying everything."""
    form = STORED[name]
    rows = np.ascontiguousarray(weight.T)
    if name == "nvfp4":
        whole = float(np.float16(np.abs(rows).max() / np.float32(6 * 448)))
        return oracle.nvfp4_searched(rows, max(whole, 2.0**-14)).T
    values, scales = oracle.searched(rows, form.levels, form.scales, form.group_size)
    size = form.group_size or rows.shape[1]
    wide: Array = values.astype(np.float64) * np.repeat(scales, size, axis=1)
    return wide.T


@pytest.mark.parametrize("name", NAMES)
def test_layers_become_one_operator_and_the_head_stays(name: str) -> None:
    model, weights = _model()
    report = QuantizeWeights(format=name).run(model)
    group = STORED[name].group_size
    fits = not group or 32 % group == 0
    second = (
        f"optc.CodebookMatMul <format: string = {name}, group_size = {group}>"
        " (h, u.quantized, u.table, u.scale)"
        if fits
        else "MatMul (h, u)"
    )
    assert nodes_text(model) == expected(
        f"""\
        a = optc.CodebookMatMul <format: string = {name}, group_size = {group}>\
 (x, w.quantized, w.table, w.scale, b)
        h = Mul (a, a)
        v = {second}
        y = MatMul (v, head)"""
    )
    assert report.details == {STORED[name].label: 1 + fits}
    assert report.skipped[-1].endswith(f"the head stays float: {name} is for layers")
    if not fits:
        assert report.skipped[0].endswith("K=32 of u is not a multiple of 64: it stays float")
    assert [w.partition(";")[0][-20:] for w in report.warnings] == [
        f"the weights are not {name}"[-20:]
    ] * (not fits)
    x = f32(3, 128)
    (found,) = run(model, {"x": x})
    second_weight = _stored(name, weights["u"]) if fits else weights["u"]
    want = x @ _stored(name, weights["w"]) + weights["b"]
    want = np.square(want) @ second_weight @ weights["head"]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_bits_of_a_weight_count_the_scales() -> None:
    bits = {
        name: QuantizeWeights(format=name).run(_model()[0]).facts["bits_per_weight"]
        for name in NAMES
    }
    assert bits["nvfp4"] == 4.5
    assert bits["mxfp4"] == 4.25
    assert bits["nf4"] == 4.25
    assert 8 < bits["fp8"] < 8.5


@pytest.mark.parametrize("name", NAMES)
def test_gptq_loses_less(name: str) -> None:
    x = f32(400, 128) @ f32(128, 128)
    lost = []
    for method in ("round", "gptq"):
        model, weights = _model()
        calibration_of(model).put(["w"], INPUT_HESSIAN, (x.T @ x / len(x)).astype(np.float64))
        calibration_of(model).put(["u"], INPUT_HESSIAN, np.eye(32))
        report = QuantizeWeights(format=name, method=method).run(model)
        assert any(kind.endswith(", gptq") for kind in report.details) == (method == "gptq")
        codes, table, scale = (
            model.graph.initializers[f"w.{part}"].const_value.numpy()  # type: ignore[union-attr]
            for part in ("quantized", "table", "scale")
        )
        size = 128 // len(scale) if scale.ndim == 2 else 1
        wide = np.repeat(scale, size, axis=0) if scale.ndim == 2 else scale
        stored = table[codes.astype(np.uint8)] * wide
        lost.append(float(np.square(x @ (stored - weights["w"])).sum()))
    assert lost[1] < 0.8 * lost[0]


def test_options_of_integers_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        QuantizeWeights(format="nf4", bits=4, group_size=32)
    assert str(caught.value) == (
        "pass quantize-weights: format=nf4 takes no bits: its bits and groups are its own, and "
        "head and embedding stay float (leave it out)"
    )
    with pytest.raises(InputError, match=r"format=nf3 is not possible \(one of int, fp8, nf4,"):
        QuantizeWeights(format="nf3")


def test_passes_that_round_to_integers_before_it_are_refused() -> None:
    quantize = QuantizeWeights(format="mxfp4")
    assert quantize.layer_schemes.by_name == {}
    with pytest.raises(InputError, match="leave propagate-errors, allocate-bits and smooth"):
        quantize.scheme(8)


def test_gptq_without_hessians_says_what_has_to_come_before() -> None:
    with pytest.raises(InputError, match=r"w: nothing is known of its inputs \(put calibrate: "):
        QuantizeWeights(format="nf4", method="gptq").run(_model()[0])
