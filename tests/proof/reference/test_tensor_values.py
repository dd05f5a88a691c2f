"""Inner values of models of named tensors."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.proof.reference import tensor_values
from optc.proof.reference.tensor_values import ValueRun
from tests.support.ir_text import f32


@pytest.mark.parametrize("message", [0, 1 << 30])
def test_weights_that_no_message_holds_go_through_a_file(
    message: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_values, "_MESSAGE", message)
    model = ir.from_onnx_text(
        """
        <ir_version: 10, opset_import: ["" : 23]>
        two (float[batch, 4] x) => (float[batch, 4] y) { h = MatMul (x, w)  y = Relu (h) }
        """
    )
    value = next(one for node in model.graph for one in node.inputs if one.name == "w")
    value.const_value = ir.tensor(f32(4, 4), name="w")
    model.graph.register_initializer(value)
    seen = {}
    inner = [model.graph.inputs[0], model.graph[0].outputs[0]]
    ValueRun(model, inner).over([{"x": f32(3, 4)}], lambda name, array: seen.update({name: array}))
    assert (seen["x"] == f32(3, 4)).all()
    np.testing.assert_allclose(seen["h"], f32(3, 4) @ f32(4, 4), rtol=1e-6)
