"""Sizes are tried in a process of its own: a crash is one more size that is not taken."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from optc import registry
from optc.backend import TensorsBuilder
from optc.compiling.tensors.trying import BuiltTensors, random_samples
from optc.runtime.executable.tensors_interface import DimRange, TensorsInterface, TensorSpec
from optc.system.hardware.target import parse_target

MANY = DimRange(1, 1 << 20)
SOUND = TensorsInterface(
    (TensorSpec("x", "float32", ("n", "t")),),
    (TensorSpec("y", "float32", ("n", "u")),),
    {"n": DimRange(1, 64), "t": MANY, "u": MANY},
)
#: A reflection needs more samples than it adds.
REFLECTED = """
<ir_version: 8, opset_import: ["": 17]>
sound (float[n, t] x) => (float[n, u] y) <int64[4] pads = {0, 200, 0, 0}>
{ y = Pad <mode = "reflect"> (x, pads) }
"""
#: ONNX Runtime divides by the steps of a Scan, of which a sound of 100 samples leaves none.
SCANNED = """
<ir_version: 8, opset_import: ["": 17]>
sound (float[n, t] x) => (float[n, u] y)
<int64[1] start = {100}, int64[1] end = {9999999}, int64[1] axis = {1}>
{
   left = Slice (x, start, end, axis)
   mean = ReduceMean <axes = [1], keepdims = 0> (x)
   last, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
      body = step (float[n] s, float[n] one) => (float[n] sum, float[n] same)
         { sum = Add (s, one)  same = Identity (one) }> (mean, left)
}
"""


def built(folder: Path, text: str) -> BuiltTensors:
    backend = registry.backend("onnxruntime")
    assert isinstance(backend, TensorsBuilder)
    model = ir.from_proto(onnx.parser.parse_model(text))
    build = backend.build_tensors(model, SOUND, parse_target("native"), folder)
    return BuiltTensors(folder, backend.name, SOUND, build.backend_data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (REFLECTED, [(2, 224), (5, 560), (3, 336)]),
        (SCANNED, [(2, 128), (5, 320), (3, 192)]),
    ],
    ids=["refused", "crashes"],
)
def test_sizes_are_those_that_the_engine_takes(
    tmp_path: Path, text: str, expected: list[tuple[int, int]]
) -> None:
    samples = random_samples(built(tmp_path, text))
    assert [one["x"].shape for one in samples] == expected


def test_an_engine_that_cannot_be_loaded_gets_the_smallest(tmp_path: Path) -> None:
    engine = built(tmp_path, REFLECTED)
    for file in tmp_path.iterdir():
        file.write_bytes(b"no engine")
    (sample,) = random_samples(engine)
    assert sample["x"].shape == (2, 2)
