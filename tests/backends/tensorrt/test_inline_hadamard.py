"""`optc::BlockHadamard` in TensorRT's operators: the values of its body, in allowed operators."""

from __future__ import annotations

import numpy as np
import pytest

from optc.backends.tensorrt.dialect.operators import STANDARD
from optc.backends.tensorrt.legalize.inline import Inline
from tests.support.hadamard import rotation
from tests.support.ir_text import f32, model_of
from tests.support.ragged import run


@pytest.mark.parametrize(("width", "block"), [(16, 16), (40, 16), (100, 64), (256, 256)])
@pytest.mark.parametrize("inverse", [0, 1])
def test_the_values_stay(width: int, block: int, inverse: int) -> None:
    stated = f"block: int = {block}, width: int = {width}, inverse: int = {inverse}"
    signature = f"g (float[B,S,{width}] x) => (float[B,S,{width}] y)"
    model = model_of(signature, f"y = optc.BlockHadamard <{stated}> (x)", {})
    assert Inline().run(model).details == {"BlockHadamard": 1}
    assert {node.op_type for node in model.graph} <= STANDARD.keys()
    x, matrix = f32(2, 3, width), rotation(width, block)
    expected = x @ (matrix.T if inverse else matrix)
    np.testing.assert_allclose(run(model, {"x": x})[0], expected, rtol=0, atol=2e-6)
