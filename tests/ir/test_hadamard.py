"""`optc::BlockHadamard` and rotation within quantizers: bodies against the matrix."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.functions import function_text
from optc.ir.functions.hadamard import hadamard_matrix
from tests.support import oracle
from tests.support.hadamard import rotation
from tests.support.ir_text import f32, model_of
from tests.support.ragged import run

CASES = [(16, 16), (16, 4), (40, 16), (64, 64), (100, 64), (300, 256)]


@pytest.mark.parametrize(("width", "block"), CASES)
@pytest.mark.parametrize("inverse", [0, 1])
def test_the_body_is_the_matrix(width: int, block: int, inverse: int) -> None:
    stated = f"block: int = {block}, width: int = {width}, inverse: int = {inverse}"
    signature = f"g (float[B,S,{width}] x) => (float[B,S,{width}] y)"
    model = model_of(signature, f"y = optc.BlockHadamard <{stated}> (x)", {})
    x, matrix = f32(2, 3, width), rotation(width, block)
    expected = x @ (matrix.T if inverse else matrix)
    np.testing.assert_allclose(run(model, {"x": x})[0], expected, rtol=0, atol=2e-6)
    assert run(model, {"x": x[:0]})[0].shape == (0, 3, width)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("op", ["QuantizeActivation", "RMSNormQuantize"])
def test_quantizers_rotate_first(op: str, bits: int) -> None:
    stated = f"bits: int = {bits}, hadamard: int = 16, width: int = 40"
    operands, norm = (
        ("x", "") if op == "QuantizeActivation" else ("x, scale", "epsilon: float = 1.0, ")
    )
    nodes = f"q, s = optc.{op} <{norm}{stated}> ({operands})"
    signature = f"g (float[S,40] x) => (int{bits}[S,40] q, float[S,1] s)"
    model = model_of(signature, nodes, {"scale": np.ones(40, np.float32)})
    x = f32(3, 40)
    normed = x if not norm else x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1)
    want, scales = oracle.quantize_activation((normed @ rotation(40, 16)).astype(np.float32), bits)
    q, s = run(model, {"x": x})
    np.testing.assert_allclose(s, scales, rtol=1e-5)
    assert np.abs(q.astype(np.int64) - want).max() <= 1  # a tie may fall to the other side


@pytest.mark.parametrize(("block", "width"), [(8, 64), (2, 64), (48, 64), (64, 63), (0, 64)])
def test_blocks_are_powers_of_four_that_fit(block: int, width: int) -> None:
    with pytest.raises(ValueError, match=f"{width} channels have no Hadamard blocks of {block}"):
        function_text("BlockHadamard", {"block": block, "width": width})


def test_matrices_are_those_of_sylvester() -> None:
    assert hadamard_matrix(2) == [[1, 1], [1, -1]]
    two = np.array(hadamard_matrix(2))
    np.testing.assert_array_equal(hadamard_matrix(8), np.kron(two, np.kron(two, two)))
