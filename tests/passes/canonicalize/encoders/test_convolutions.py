"""Convolutions of any sizes that read images or sounds, beside the same as ONNX defines them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.importer.tensors.interface import describe
from optc.ir.forms.packed import PackedRows, Patches
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.canonicalize.encoders.pack_rows import PackRows
from optc.passes.general.simplify import Simplify
from tests.passes.canonicalize.encoders.patches import rows_of
from tests.passes.canonicalize.texts import wrong_shapes
from tests.support.ir_text import Array, f32
from tests.support.ragged import run

PACKED = Pipeline((Simplify(), PackRows()))


def model_of(
    shape: Sequence[int], nodes: str, weights: dict[str, Array], result: str = "float[batch,T,D] y"
) -> ir.Model:
    """Over an input ``x`` [batch, …]."""
    words = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    sizes = ",".join(map(str, shape))
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 23]> g (float[batch,{sizes}] x) => ({result})'
        f" {{ {nodes} }}"
    )
    for name, array in weights.items():
        if name in words:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))
    describe(model, [])
    return model


def packed_as_it_was(model: ir.Model, shape: Sequence[int]) -> Patches:
    """Rows have the values that the model gave."""
    x = f32(3, *shape, seed=9)
    (wanted,) = run(model, {"x": x})
    PACKED.run(model)
    form = PackedRows.of(model)
    assert form.patches is not None
    rows = rows_of(x, form.patches)
    (found,) = run(model, rows)
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)
    assert wrong_shapes(model, rows) == []
    assert "x" not in {value.name for value in model.graph.inputs}
    return form.patches


@pytest.mark.parametrize(
    ("channels", "size", "patch"),
    [
        (1, (4, 4), (4, 4)),
        (3, (8, 8), (4, 4)),
        (2, (6, 12), (3, 4)),
        (2, (12, 4), (2, 4)),
    ],
)
@pytest.mark.parametrize(("bias", "lead"), [(False, 0), (True, 1), (True, 3)])
def test_patches_of_images(
    channels: int, size: tuple[int, ...], patch: tuple[int, ...], bias: bool, lead: int
) -> None:
    grid = [whole // part for whole, part in zip(size, patch, strict=True)]
    tokens = int(np.prod(grid)) + lead
    weights = {
        "w": f32(5, channels, *patch),
        "b": f32(5, seed=1),
        "flat": np.array([0, 5, -1]),
        "front": f32(1, lead, 5, seed=2),
        "rest": np.array([lead, 5]),
        "place": f32(tokens, 5, seed=3),
    }
    strides = f"strides = {list(patch)}"
    nodes = f"c = Conv <{strides}> (x, w{', b' if bias else ''}) r = Reshape (c, flat) "
    nodes += "t = Transpose <perm = [0, 2, 1]> (r) "
    if lead:
        nodes += "n = Shape <start = 0, end = 1> (x) e1 = Concat <axis = 0> (n, rest) "
        nodes += "e = Expand (front, e1) z = Concat <axis = 1> (e, t) "
    nodes += f"s = Add ({'z' if lead else 't'}, place) y = Tanh (s)"
    found = packed_as_it_was(model_of((channels, *size), nodes, weights), (channels, *size))
    assert found == Patches("x", patch, tokens, 1, lead)


#: Channels, width, stride and padding on both sides of convolutions along 24 values.
SOUNDS: list[list[tuple[int, int, int, int, int]]] = [
    [(5, 1, 1, 0, 0)],
    [(5, 2, 2, 0, 0)],
    [(5, 3, 1, 1, 1)],
    [(5, 3, 1, 2, 0)],
    [(5, 3, 1, 0, 2)],
    [(5, 3, 2, 1, 1)],
    [(5, 4, 4, 0, 0), (6, 3, 2, 1, 0)],
    [(6, 3, 1, 1, 1), (5, 3, 2, 1, 1), (7, 5, 3, 1, 1)],
]


@pytest.mark.parametrize("layers", SOUNDS)
def test_convolutions_along_sounds(layers: list[tuple[int, int, int, int, int]]) -> None:
    for bias, activation in ((False, "Relu"), (True, "")):
        nodes, read, channels, length = "", "x", 3, 24
        weights: dict[str, Array] = {}
        for index, (out, width, stride, before, after) in enumerate(layers):
            weights[f"w{index}"] = f32(out, channels, width, seed=index)
            weights[f"b{index}"] = f32(out, seed=index)
            operands = f"{read}, w{index}" + (f", b{index}" if bias else "")
            made = f"strides = [{stride}], pads = [{before}, {after}]"
            nodes += f"c{index} = Conv <{made}> ({operands}) "
            read, channels = f"c{index}", out
            length = (length + before + after - width) // stride + 1
            if activation:
                nodes += f"a{index} = {activation} ({read}) "
                read = f"a{index}"
        weights["place"] = f32(length, channels, seed=7)
        nodes += f"t = Transpose <perm = [0, 2, 1]> ({read}) s = Add (t, place) y = Tanh (s)"
        found = packed_as_it_was(model_of((3, 24), nodes, weights), (3, 24))
        _, width, stride, before, after = layers[0]
        apart = width == stride and before == after == 0
        first = width if apart else 1
        assert found == Patches("x", (first,), length, 24 // first // length, 0)


def test_numbers_without_attributes_are_those_of_onnx() -> None:
    """Strides of 1, no padding, one group."""
    weights = {"w": f32(5, 3, 1), "place": f32(8, 5)}
    nodes = "c = Conv (x, w) t = Transpose <perm = [0, 2, 1]> (c) s = Add (t, place) y = Tanh (s)"
    assert packed_as_it_was(model_of((3, 8), nodes, weights), (3, 8)).sizes == (1,)


TO_ROWS = "r = Reshape (c, flat) y = Transpose <perm = [0, 2, 1]> (r)"
ROWS = "y = Transpose <perm = [0, 2, 1]> (c)"


@pytest.mark.parametrize(
    ("shape", "nodes", "reason"),
    [
        ((4, 8, 8), f"c = Conv <group = 2, strides = [4, 4]> (x, w2) {TO_ROWS}", "grouped"),
        (
            (4, 9, 9),
            f"c = Conv <dilations = [2, 2], strides = [2, 2]> (x, w3) {TO_ROWS}",
            "grouped or dilated",
        ),
        (
            (4, 8, 8),
            f'c = Conv <auto_pad = "SAME_UPPER", strides = [4, 4]> (x, w) {TO_ROWS}',
            "grouped or dilated",
        ),
        (
            (4, 8, 8),
            f"n = ReduceMean (x) m = Mul (n, w) c = Conv <strides = [4, 4]> (x, m) {TO_ROWS}",
            "its input is read by",
        ),
        ((4, 8, 8), f"c = Conv <strides = [2, 2]> (x, w) {TO_ROWS}", "its windows overlap"),
        (
            (4, 8, 8),
            f"c = Conv <strides = [4, 4], pads = [4, 0, 0, 0]> (x, w) {TO_ROWS}",
            "its windows overlap",
        ),
        ((4, 9, 8), f"c = Conv <strides = [4, 4]> (x, w) {TO_ROWS}", r"do not fill \[9, 8\]"),
        ((4, 8, 10), f"c = Conv <strides = [4, 4]> (x, w) {TO_ROWS}", r"do not fill \[8, 10\]"),
        ((4, 8), f"c = Conv <strides = [3]> (x, wide) {ROWS}", "it makes 3 rows of 8"),
        ((4, 8, 8), "y = Relu (x)", "read by Relu, and not by one convolution"),
        (
            (4, 8, 8),
            f"c = Conv <strides = [4, 4]> (x, w) o = Relu (x) {TO_ROWS}",
            "its input is read by Conv, Relu",
        ),
        ((4, 8, 8), "c = Conv <strides = [4, 4]> (x, w) y = Exp (c)", "does not become rows"),
        (
            (4, 8, 8),
            f"c0 = Conv <strides = [4, 4]> (x, w) c = Softmax <axis = 1> (c0) {TO_ROWS}",
            "does not become rows",
        ),
    ],
)
def test_what_is_no_front_says_why(shape: tuple[int, ...], nodes: str, reason: str) -> None:
    weights = {
        "w": f32(5, 4, 4, 4),
        "w2": f32(6, 2, 4, 4),
        "w3": f32(5, 4, 2, 2),
        "wide": f32(5, 4, 2),
        "flat": np.array([0, 0, -1]),
    }
    with pytest.raises(UnsupportedError, match=reason):
        Pipeline((PackRows(),)).run(model_of(shape, nodes, weights))
