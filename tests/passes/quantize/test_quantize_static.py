from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from optc.errors import InputError, UnsupportedError
from optc.ir.pipeline.base import Pass, PassContext
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.quantize_static import QuantizeStatic
from optc.proof.reference.calibration import calibration_of
from tests.support import oracle
from tests.support.calibration import set_input_ranges
from tests.support.ir_text import Array, expected, f32, model_of, nodes_text

SIGNATURE = "g (float[T,16] x) => (float[T,8] y, float[T,12] z)"
NODES = """a = MatMul (x, w)
    y = Add (a, b)
    z = MatMul (x, v)"""


def _model(calibrated: bool = True) -> tuple[ir.Model, dict[str, Array]]:
    weights = {"w": f32(16, 8), "b": f32(8), "v": f32(16, 12)}
    model = model_of(SIGNATURE, NODES, weights)
    if calibrated:
        set_input_ranges(model, 4.0, ("w", "v"))
    return model, weights


def _run(model: ir.Model, x: Array) -> list[Array]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    results: list[Array] = session.run(None, {"x": x})
    return results


def test_text() -> None:
    """Two layers of one input share its quantization; the bias stays."""
    model, _ = _model()
    report = QuantizeStatic(head=True).run(model)
    assert report.details == {"int8 per channel, activations per tensor": 2}
    assert nodes_text(model) == expected(
        """\
        x.int8.quantize = QuantizeLinear <output_dtype = 3> (x, x.int8.scale)
        x.int8.dequantize = DequantizeLinear (x.int8.quantize, x.int8.scale)
        w.dequantize = DequantizeLinear <axis = 1> (w.quantized, w.scale)
        w.matmul = MatMul (x.int8.dequantize, w.dequantize)
        y = Add (w.matmul, b)
        v.dequantize = DequantizeLinear <axis = 1> (v.quantized, v.scale)
        z = MatMul (x.int8.dequantize, v.dequantize)"""
    )


def _quantized(values: Array, scale: Array, dtype: str) -> Array:
    """``values`` as the type has them, in float64, by the definitions."""
    ratio = values.astype(np.float64) / scale
    if dtype == "int8":
        return np.clip(np.rint(ratio), -127, 127) * scale
    wide = np.clip(ratio, -448, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    return wide.astype(np.float64) * scale


@pytest.mark.parametrize(("dtype", "limit"), [("int8", 127.0), ("fp8", 448.0)])
def test_numbers_are_those_of_the_definition(dtype: str, limit: float) -> None:
    model, weights = _model()
    QuantizeStatic(dtype=dtype, head=True).run(model)
    x = f32(5, 16)
    x[0, 0] = 9.0  # beyond the calibrated range: saturates
    step = np.float64(np.float16(4.0 / limit))
    products = []
    for name in ("w", "v"):
        scales = np.float16(np.abs(weights[name]).max(axis=0) / np.float32(limit))
        rounded = _quantized(weights[name], scales.astype(np.float64), dtype)
        products.append(_quantized(x, step, dtype) @ rounded)
    y, z = _run(model, x)
    # int8 saturates at -128, which a value below the range by half a step may reach
    np.testing.assert_allclose(y, products[0] + weights["b"], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(z, products[1], rtol=1e-4, atol=1e-3)


def _wide_model() -> tuple[ir.Model, dict[str, Array]]:
    weights = {"w": f32(48, 8), "b": f32(8), "v": f32(24, 12)}
    signature = "g (float[T,48] x, float[T,24] u) => (float[T,8] y, float[T,12] z)"
    model = model_of(signature, "a = MatMul (x, w)\ny = Add (a, b)\nz = MatMul (u, v)", weights)
    set_input_ranges(model, 4.0, ("w", "v"))
    return model, weights


def test_nvfp4_text() -> None:
    """Blocks of 16 must divide K: the other layer stays float, and is named."""
    model, _ = _wide_model()
    report = QuantizeStatic(dtype="nvfp4", head=True).run(model)
    assert report.details == {"NVFP4 in blocks of 16, activations too": 1}
    assert report.skipped[0].endswith("K=24 of v is not a multiple of 16: it stays float")
    (warning,) = report.warnings
    assert warning.startswith("43% of the weights are not nvfp4; ")
    assert nodes_text(model) == expected(
        """\
        y = optc.BlockFp4MatMul (x, w.quantized, w.scale, w.global_scale,\
 w.input_global_scale, b)
        z = MatMul (u, v)"""
    )


def test_nvfp4_numbers_are_those_of_the_definition() -> None:
    model, weights = _wide_model()
    weights["w"][:16, 3] = 0.0  # a block of zeros
    QuantizeStatic(dtype="nvfp4", head=True).run(model)
    x, u = f32(5, 48), f32(5, 24)
    x[0, 0] = 90.0  # beyond the calibrated range: the block's scale saturates
    wholes = [
        float(np.float16(np.float32(size) / np.float32(6 * 448)))
        for size in (np.abs(weights["w"]).max(), 4.0)
    ]
    weight = oracle.nvfp4_searched(np.ascontiguousarray(weights["w"].T), wholes[0]).T
    want = oracle.nvfp4(x, wholes[1]) @ weight + weights["b"]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    got = session.run(["y"], {"x": x, "u": u})[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_scales_are_exact_in_float16_and_never_tiny() -> None:
    model, _ = _model()
    set_input_ranges(model, 127.3 * 2.0**-14, ("w", "v"))
    QuantizeStatic(head=True).run(model)
    for name in ("x.int8.scale", "w.scale", "v.scale"):
        tensor = model.graph.initializers[name].const_value
        assert tensor is not None
        scales = tensor.numpy()
        np.testing.assert_array_equal(scales, scales.astype(np.float16).astype(np.float32))
        assert scales.min() >= 2.0**-14


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
@pytest.mark.parametrize(
    ("magnitude", "why"),
    [
        (1e-9, "is beneath float16's normal numbers, so that bits would be lost"),
        (1e9, "exceeds float16, so that values would saturate"),
    ],
)
def test_a_layer_whose_range_has_no_scale_stays_float_and_is_named(
    dtype: str, magnitude: float, why: str
) -> None:
    model, weights = _model()
    set_input_ranges(model, magnitude, ("w", "v"))
    report = QuantizeStatic(dtype=dtype, head=True).run(model)
    assert report.count == 0
    assert report.skipped[0].startswith(
        f"MatMul: the input of w reaches {magnitude:.3g}: its scale "
    )
    assert report.skipped[0].endswith(f"{why}; it stays float")
    x = f32(5, 16)
    np.testing.assert_allclose(_run(model, x)[1], x @ weights["v"], rtol=1e-5, atol=1e-5)


def test_ranges_are_no_concern_of_blocks_with_scales_of_their_own() -> None:
    model, _ = _wide_model()
    set_input_ranges(model, 1e-9, ("w", "v"))
    assert QuantizeStatic(dtype="nvfp4", head=True).run(model).count == 1


def test_the_head_stays_float_unless_it_is_asked_for() -> None:
    model, _ = _model()
    model.graph.outputs[:] = [model.graph.outputs[1]]
    report = QuantizeStatic().run(model)
    assert report.count == 1
    assert report.skipped == ["MatMul: the head stays float (head=false)"]


def test_layers_without_a_range_are_left_and_named() -> None:
    model, _ = _model(calibrated=False)
    report = QuantizeStatic(head=True).run(model)
    assert report.count == 0
    assert report.skipped[0].endswith("the input of w is not calibrated")


def test_it_needs_calibration_before_it() -> None:
    passes: tuple[Pass, ...] = (QuantizeStatic(),)
    with pytest.raises(InputError, match="quantize-static must come after calibrate"):
        Pipeline(passes).run(_model()[0])
    assert Calibrate.name in QuantizeStatic.after


def test_types_that_are_not_known_are_refused() -> None:
    with pytest.raises(InputError, match=r"dtype=int3 is not possible \(one of int8, fp8, nvfp4\)"):
        QuantizeStatic(dtype="int3")
    assert not issubclass(InputError, UnsupportedError)


def test_layers_behind_one_without_a_range_are_quantized() -> None:
    model, _ = _model(calibrated=False)
    set_input_ranges(model, 4.0, ("v",))
    report = QuantizeStatic(head=True).run(model)
    assert report.details == {"int8 per channel, activations per tensor": 1}
    assert report.skipped == ["MatMul: the input of w is not calibrated"]


def test_its_samples_are_what_it_writes_of_an_embedding_a_layer_and_a_head() -> None:
    written = [node.op_type for node in QuantizeStatic(head=True).samples()]
    assert written[0] == "Gather"
    assert written.count("MatMul") == 2
    assert "QuantizeLinear" in written


@pytest.mark.parametrize("dtype", ["int8", "fp8", "nvfp4"])
def test_gptq_rounds_to_the_same_type_with_less_loss(dtype: str) -> None:
    models, outputs = [_model()[0] for _ in range(2)], []
    weights, x = _model()[1], f32(200, 16) @ f32(16, 16)
    for model, method in zip(models, ("round", "gptq"), strict=True):
        store = calibration_of(model)
        for name in ("w", "v"):
            store.put([name], INPUT_HESSIAN, (x.T @ x / len(x)).astype(np.float64))
        report = QuantizeStatic(dtype=dtype, head=True, method=method).run(model)
        assert sum(report.details.values()) == 2
        assert all(kind.endswith(", gptq") == (method == "gptq") for kind in report.details)
        outputs.append(_weights_of(model))
    lost = [
        sum(float(np.square(x @ (found[name] - weights[name])).sum()) for name in ("w", "v"))
        for found in outputs
    ]
    assert lost[1] < 0.9 * lost[0]


def _weights_of(model: ir.Model) -> dict[str, Array]:
    """What the quantized weights stand for, [K, N]."""
    found = {}
    for name in ("w", "v"):
        values, scale = (
            model.graph.initializers[f"{name}.{part}"].const_value.numpy()  # type: ignore[union-attr]
            for part in ("quantized", "scale")
        )
        wide = values.astype(np.float32)
        if scale.ndim == 2:
            whole = model.graph.initializers[f"{name}.global_scale"].const_value.numpy()  # type: ignore[union-attr]
            wide, scale = wide / 2, np.repeat(scale.astype(np.float32), 16, axis=0) * whole
        found[name] = wide * scale
    return found


def test_gptq_without_hessians_says_what_has_to_come_before() -> None:
    with pytest.raises(InputError) as caught:
        QuantizeStatic(dtype="nvfp4", head=True, method="gptq").run(_model()[0])
    assert str(caught.value) == (
        "pass quantize-static, w: nothing is known of its inputs "
        "(put calibrate: {hessians: true} before it, and give a --calibration text)"
    )


def test_a_plan_needs_no_hessians() -> None:
    static = QuantizeStatic(dtype="nvfp4", head=True, method="gptq")
    assert static.run(_model()[0], PassContext(dry=True)).count == 2
    assert QuantizeStatic().costs(_model()[0]).reading == 0


def test_methods_that_are_not_known_are_refused() -> None:
    with pytest.raises(InputError, match=r"method=awq is not possible \(one of round, gptq\)"):
        QuantizeStatic(method="awq")
