"""Operators that tiny models lack, against ONNX's own meaning of them in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from optc.compiling.training.operators import OPERATORS
from tests.support import oracle
from tests.support.hadamard import rotation


def run(op_type: str, *operands: object, domain: str = "", **attributes: object) -> object:
    values = [None if o is None else torch.as_tensor(o) for o in operands]
    return OPERATORS[domain, op_type](values, attributes)


def test_slices_splits_and_axes() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    got = run("Slice", x, np.array([1]), np.array([9]), np.array([-1]), np.array([2]))
    np.testing.assert_array_equal(got, x[..., 1:9:2])
    np.testing.assert_array_equal(run("Slice", x, np.array([1]), np.array([2])), x[1:2])
    first, second = run("Split", x, None, axis=1, num_outputs=2)
    assert first.shape == (2, 2, 4)
    assert second.shape == (2, 1, 4)
    assert run("Unsqueeze", x, np.array([0, -1])).shape == (1, 2, 3, 4, 1)
    assert run("Squeeze", x[None], np.array([0])).shape == x.shape
    np.testing.assert_array_equal(run("Concat", x, x, axis=-1), np.concatenate([x, x], -1))


def test_gated_activations_take_the_gate_first() -> None:
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    gate, up = x[:, :4], x[:, 4:]
    got = run("GatedActivation", x, domain="optc", activation="silu")
    np.testing.assert_allclose(got, gate / (1 + np.exp(-gate)) * up, rtol=1e-5)
    tanh = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
    got = run("GatedActivation", x, domain="optc", activation="gelu_tanh")
    np.testing.assert_allclose(got, tanh * up, rtol=1e-4, atol=1e-6)
    parts = {"alpha": 1.702, "limit": 0.4, "up_shift": 1.0}
    got = run("GatedActivation", x, domain="optc", activation="silu", **parts)
    np.testing.assert_allclose(got, oracle.gated(x, "silu", **parts), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inverse", [0, 1])
def test_rotations_and_their_gradients(inverse: int) -> None:
    x = torch.randn(2, 3, 40, generator=torch.Generator().manual_seed(0), requires_grad=True)
    matrix = rotation(40, 16).T if inverse else rotation(40, 16)
    options = {"block": 16, "width": 40, "inverse": inverse}
    got = OPERATORS["optc", "BlockHadamard"]([x], options)
    assert isinstance(got, torch.Tensor)
    expected = x.detach().numpy() @ matrix
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=0, atol=2e-6)
    got.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad[0, 0].numpy(), matrix.sum(axis=1), rtol=0, atol=2e-6)


def test_clip_with_one_bound() -> None:
    x = np.array([-2.0, 0.5, 3.0], np.float32)
    np.testing.assert_array_equal(run("Clip", x, None, np.float32(1)), np.minimum(x, 1))


def test_a_cast_to_narrow_floats_stays_float32() -> None:
    assert run("Cast", np.array([1, 2]), to=10).dtype == torch.float32
    assert run("Cast", np.array([1.5]), to=7).tolist() == [1]
