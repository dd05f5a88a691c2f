"""Fronts of encoders of images as ONNX text: what becomes of them, and what is none."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.importer.tensors.interface import describe
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.canonicalize.encoders.pack_rows import PackRows


def _text(front: str, initializers: str = "") -> ir.Model:
    zeros = ", ".join(["0"] * 96)
    model = ir.from_onnx_text(f"""
        <ir_version: 10, opset_import: ["" : 23]>
        graph (float[batch, 3, 8, 8] x) => (float[batch, 4, 2] y)
        <float[2, 3, 4, 4] w = {{{zeros}}}, int64[3] flat = {{0, 2, -1}} {initializers}> {{
            {front}
        }}
    """)
    describe(model, [])
    return model


@pytest.mark.parametrize(
    ("front", "message"),
    [
        (
            "c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)\nr = Reshape (c, flat)\n"
            "y = Transpose <perm = [0, 2, 1]> (r)",
            "its windows overlap, or do not touch",
        ),
        (
            "c = Conv <strides = [4, 4]> (x, w)\nr = Reshape (c, flat)\n"
            "s = Exp (r)\ny = Transpose <perm = [0, 2, 1]> (s)",
            "its result does not become rows of tokens",
        ),
        (
            "n = Relu (x)\nc = Conv <strides = [4, 4]> (n, w)\nr = Reshape (c, flat)\n"
            "y = Transpose <perm = [0, 2, 1]> (r)",
            "read by Relu, and not by one convolution",
        ),
        (
            "c = Conv <strides = [4, 4]> (x, w)\nr = Reshape (c, flat)\n"
            "t = Transpose <perm = [0, 2, 1]> (r)\nb = Shape (x)\nf = Cast <to = 1> (b)\n"
            "s = ReduceSum <keepdims = 0> (f)\ny = Mul (t, s)",
            "it reads the input behind the front",
        ),
    ],
)
def test_fronts_that_are_not_recognized(front: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        Pipeline((PackRows(),)).run(_text(front))


def test_a_front_alone_becomes_a_product_and_a_table() -> None:
    model = _text(
        "c = Conv <strides = [4, 4]> (x, w)\nr = Reshape (c, flat)\n"
        "t = Transpose <perm = [0, 2, 1]> (r)\ny = Add (t, place)",
        ", float[4, 2] place = {1, 2, 3, 4, 5, 6, 7, 8}",
    )
    Pipeline((PackRows(),)).run(model)
    assert [node.op_type for node in model.graph] == ["MatMul", "Gather", "Add"]
    (table,) = [node.inputs[0] for node in model.graph if node.op_type == "Gather"]
    assert table is not None
    assert table.const_value is not None
    assert table.const_value.numpy().tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_sizes_of_a_batch_that_are_read_of_the_images_go() -> None:
    model = _text(
        "c = Conv <strides = [4, 4]> (x, w)\nr = Reshape (c, flat)\n"
        "t = Transpose <perm = [0, 2, 1]> (r)\nz = Add (t, place)\n"
        "b = Shape <start = 0, end = 1> (x)\ns = Concat <axis = 0> (b, rest)\n"
        "e = Expand (z, s)\ny = Tanh (e)",
        ", float[4, 2] place = {1, 2, 3, 4, 5, 6, 7, 8}, int64[2] rest = {4, 2}",
    )
    Pipeline((PackRows(),)).run(model)
    assert [node.op_type for node in model.graph] == ["MatMul", "Gather", "Add", "Tanh"]
    assert "x" not in {str(value.name) for value in model.graph.inputs}
