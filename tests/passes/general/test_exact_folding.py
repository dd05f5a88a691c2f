"""Folding changes no result."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from optc.ir.exact_folding import fold_exactly
from tests.support.ragged import run


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Clip(x, one, two) y = Clip(a, three, four)",
        "a = Clip(x, three, four) y = Clip(a, one, two)",
        "a = Neg(two) b = Neg(one) c = Clip(x, a, b) y = Relu(c)",
        "a = Neg(two) b = Neg(one) c = Relu(x) y = Clip(c, a, b)",
        "a = Max(x, three) y = Min(a, two)",
        "a = Min(x, two) y = Max(a, three)",
    ],
)
def test_ranges_that_have_nothing_in_common(nodes: str) -> None:
    numbers = enumerate(["one", "two", "three", "four"], 1)
    weights = ", ".join(f"float {name} = {{{value}}}" for value, name in numbers)
    text = f"""<ir_version: 9, opset_import: ["": 18]>
    g (float[n, 3] x) => (float[n, 3] y) <{weights}> {{ {nodes} }}"""
    proto: onnx.ModelProto = parser.parse_model(text)
    model, folded = ir.from_proto(proto), ir.from_proto(proto)
    fold_exactly(folded)
    x = np.array([[-5.0, 1.5, 9.0]], np.float32)
    np.testing.assert_array_equal(run(folded, {"x": x})[0], run(model, {"x": x})[0])
