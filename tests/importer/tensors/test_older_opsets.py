"""ONNX models of older operator sets, beside ONNX Runtime, which runs them as they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from optc.importer.tensors.onnx_source import import_onnx
from tests.support.ragged import run

X = np.random.default_rng(0).standard_normal((2, 3, 8, 7)).astype(np.float32)


def unchanged(model: onnx.ModelProto) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found: np.ndarray = session.run(None, {"x": X})[0]
    return found


def graph(opset: int, body: str, **weights: np.ndarray) -> onnx.ModelProto:
    head = f'<ir_version: 6, opset_import: ["" : {opset}, "own": 1]>'
    model = parser.parse_model(f"{head} g (float[N,3,8,7] x) => (float[N,C,H,W] y) {{ {body} }}")
    model.graph.initializer.extend(
        numpy_helper.from_array(one, name) for name, one in weights.items()
    )
    return model


def scaled(*scales: float) -> np.ndarray:
    return np.array([1, 1, *scales], np.float32)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("scales", [(2, 2), (1.7, 2.5), (1, 3), (0.5, 0.6), (1, 0.4)])
def test_pixels_lie_where_they_lay(mode: str, scales: tuple[float, float]) -> None:
    """Before opset 11 a pixel's corner is its place, which ONNX's converter forgets."""
    models = [graph(10, f'y = Resize<mode="{mode}">(x, s)', s=scaled(*scales))]
    if min(scales) >= 1:
        models.append(graph(9, f'y = Upsample<mode="{mode}">(x, s)', s=scaled(*scales)))
        stated = ", ".join(str(float(one)) for one in (1, 1, *scales))
        models.append(graph(7, f'y = Upsample<mode="{mode}", scales=[{stated}]>(x)'))
    for model in models:
        (found,) = run(import_onnx(model, "m").model, {"x": X})
        np.testing.assert_allclose(found, unchanged(model), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [7, 11, 12])
@pytest.mark.parametrize("body", ["y = Hardmax(x)", "y = Hardmax<axis=2>(x)"])
def test_the_largest_of_several_axes(opset: int, body: str) -> None:
    """Before opset 13 Hardmax has one largest over an axis and all behind it."""
    model = graph(opset, body)
    (found,) = run(import_onnx(model, "m").model, {"x": X})
    np.testing.assert_array_equal(found, unchanged(model))


def test_functions_are_kept() -> None:
    model = graph(13, "y = own.twice(x)")
    model.functions.append(
        parser.parse_function(
            '<domain: "own", opset_import: ["" : 13]> twice (a) => (b)'
            "{ m = ReduceMean<axes = [1], keepdims = 1>(a) b = Add(a, m) }"
        )
    )
    (found,) = run(import_onnx(model, "m").model, {"x": X})
    np.testing.assert_allclose(found, unchanged(model), rtol=1e-5, atol=1e-6)


def test_newer_models_stay_as_they_are() -> None:
    model = ir.from_proto(graph(18, "y = Relu(x)"))
    assert import_onnx(model, "m").model.opset_imports[""] == 18
