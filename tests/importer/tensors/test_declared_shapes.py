"""Shapes that a file states are checked against those that follow from its inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import optc
from optc.importer.tensors.declared_shapes import corrected_shapes
from optc.importer.tensors.onnx_source import import_onnx

#: A last Reshape adds an axis, by a shape that the data give; the file states another one.
RESHAPED = """
<ir_version: 8, opset_import: ["": 17]>
graph (float[n, 4] x) => (float[STATED] y)
<int64[1] one = {1}>
{
   r = Relu (x)
   s = Shape (x)
   t = Concat <axis = 0> (one, s)
   y = Reshape (r, t)
}
"""


def file(folder: Path, stated: str) -> Path:
    model = onnx.parser.parse_model(RESHAPED.replace("STATED", stated))
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize(
    ("stated", "told"),
    [("n, 4", 1), ("1, seqlen", 1), ("1, n, 4", 0), ("a, b, c", 0)],
)
def test_wrong_shapes_of_outputs_are_replaced_and_said(
    tmp_path: Path, stated: str, told: int
) -> None:
    source = file(tmp_path, stated)
    imported = import_onnx(source, "m")
    assert len(imported.interface.outputs[0].dims) == 3
    assert len(imported.warnings) == told
    if told:
        (warning,) = imported.warnings
        assert warning.startswith(f"the file states the shape [{stated}] for its output y, which")
    artifact = optc.compile(source, output=tmp_path / "a")
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(source).run(None, {"x": x})[0]
    with optc.load_tensors(artifact.path) as engine:
        np.testing.assert_array_equal(engine.run({"x": x})["y"], wanted)


def test_missing_shapes_of_outputs_are_inferred(tmp_path: Path) -> None:
    source = file(tmp_path, "a, b, c")
    model = onnx.load(source)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, source)
    imported = import_onnx(source, "m")
    assert len(imported.interface.outputs[0].dims) == 3
    assert imported.warnings == ()


def test_shapes_inside_that_contradict_are_replaced() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        graph (float[n, 4] x) => (float[n, 4] y) { r = Relu (x)  y = Neg (r) }"""
    )
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("r", 1, ["n", 5]))
    (relu, _) = import_onnx(model, "m").model.graph
    assert relu.outputs[0].shape is not None
    assert relu.outputs[0].shape[1] == 4


def test_what_cannot_be_inferred_stays_as_it_is_stated() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "nobody": 1]>
        graph (float[n, 4] x) => (float[n, 9] y) { y = nobody.Unknown (x) }"""
    )
    imported = import_onnx(model, "m")
    assert imported.interface.outputs[0].dims == ("n", 9)
    assert imported.warnings == ()


def test_where_inference_fails_all_stays_as_it_is_stated_and_nothing_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of a domain whose version the file does not say, ONNX infers nothing at all."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        graph (float[n, 4] x) => (float[n, 9] y) { z = Neg (x) y = nobody.Unknown (z) }"""
    )
    read = ir.from_proto(model)
    assert corrected_shapes(read) == ()
    assert str(read.graph.outputs[0].shape) == "[n,9]"
    assert not caplog.records
