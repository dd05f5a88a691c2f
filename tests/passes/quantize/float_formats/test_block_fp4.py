"""NVFP4 weights: the rewrite, and its numbers against an oracle."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.linear import find_linear
from optc.passes.quantize.float_formats.block_fp4 import rewrite_block_fp4
from tests.support import oracle
from tests.support.ir_text import Array, f32, model_of, nodes_text
from tests.support.ragged import run

SIGNATURE = "g (float[S,32] x) => (float[S,6] y)"


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_becomes_one_operator(bias: bool) -> None:
    weight = f32(32, 6)
    weight[16:, 2] = 0  # a block of zeros
    nodes = "m = MatMul (x, w)\ny = Add (m, b)" if bias else "y = MatMul (x, w)"
    model = model_of(SIGNATURE, nodes, {"w": weight, "b": f32(6)})
    x = f32(3, 32)
    exact = x @ weight + (f32(6) if bias else 0)
    linear = find_linear(model.graph[0])
    assert linear is not None
    rewrite_block_fp4(model, linear, magnitude=float(np.abs(x).max()))
    operands = ["x", "w.quantized", "w.scale", "w.global_scale", "w.input_global_scale"]
    operands += ["b"] if bias else []
    assert nodes_text(model) == f"y = optc.BlockFp4MatMul ({', '.join(operands)})"
    (found,) = run(model, {"x": x})
    parts = {name: model.graph.initializers[f"w.{name}"].const_value for name in PARTS}
    values, scales, whole, given = (parts[name].numpy() for name in PARTS)
    restored = (values / 2) * np.repeat(scales.astype(np.float32), 16, axis=0) * whole
    want = oracle.nvfp4(x, float(given)) @ restored + (f32(6) if bias else 0)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    assert (values[16:, 2] == 0).all()
    assert 0 < np.abs(found - exact).max() < 0.3 * np.abs(exact).max()


PARTS = ("quantized", "scale", "global_scale", "input_global_scale")


def test_values_are_the_nearest_of_e2m1() -> None:
    weight = f32(32, 6)
    model = model_of(SIGNATURE, "y = MatMul (x, w)", {"w": weight})
    linear = find_linear(model.graph[0])
    assert linear is not None
    rewrite_block_fp4(model, linear, magnitude=1.0)
    values, scales, whole, _ = (
        model.graph.initializers[f"w.{name}"].const_value.numpy() for name in PARTS
    )
    assert float(whole) == pytest.approx(np.abs(weight).max() / (6 * 448), rel=2**-10)
    block = np.repeat(scales.astype(np.float32), 16, axis=0) * whole
    nearest: Array = oracle.e2m1((weight / block).astype(np.float32))
    np.testing.assert_array_equal(values, 2 * nearest)
