"""Weights and inputs in blocks of 8 bits beside the formula."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.general.block_rounding import MOST, ZERO, _rounded, hessians, nearest
from optc.passes.general.block_rounding import Read as ReadAs
from tests.support.hadamard import rotation
from tests.support.ir_text import f32, model_of


def test_each_weight_by_itself() -> None:
    rows = np.array([[1.0, -2.0, 0.0, 0.0], [0.5, 0.25, 127.0, -1.0]], np.float32)
    found = nearest(rows, 2)
    assert found.codes.tolist() == [
        [[ZERO + 64, ZERO - MOST], [ZERO, ZERO]],
        [[ZERO + MOST, ZERO + 64], [ZERO + MOST, ZERO - 1]],
    ]
    np.testing.assert_allclose(
        found.scales[..., 0], [[2 / 127, 1 / 127], [0.5 / 127, 1]], rtol=1e-6
    )
    assert (found.codes.dtype, found.scales.dtype) == (np.uint8, np.float32)


@pytest.mark.parametrize("size", [4, 8])
def test_weights_are_as_near_as_half_a_step(size: int) -> None:
    rows = f32(5, 16)
    codes, scales = nearest(rows, size)
    back = (codes.astype(np.float32) - ZERO) * scales
    assert back.shape == (5, 16 // size, size)
    assert (np.abs(back.reshape(rows.shape) - rows) <= np.repeat(scales[..., 0], size, 1) / 2).all()


def test_inputs_are_rotated_and_rounded_as_engines_read_them() -> None:
    rows = f32(3, 8)
    turned = (rows @ rotation(8, 4)).reshape(3, 2, 4)
    scales = np.abs(turned).max(axis=2, keepdims=True) / MOST
    expected = (np.rint(turned / scales) * scales).reshape(3, 8)
    np.testing.assert_allclose(_rounded(rows, 4, 4), expected, rtol=1e-5, atol=1e-6)
    assert _rounded(np.zeros((1, 4), np.float32), 0, 4).tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("room", [1 << 30, 0])
def test_hessians_sum_over_all_samples(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not there is room for those of all values at once."""
    monkeypatch.setattr("optc.passes.general.block_rounding._ROOM", room)
    model = model_of("g (float[N,4] x) => (float[N,4] y, float[N,4] z)", "y = Neg (x) z = Abs (x)")
    values = [node.outputs[0] for node in model.graph]
    samples = [{"x": f32(6, 4, seed=seed)} for seed in (1, 2)]
    found = dict(hessians(model, {one: ReadAs(4, 0) for one in values}, samples, 4))
    assert list(found) == values
    for value, seen in zip(values, (np.negative, np.abs), strict=True):
        rows = [_rounded(seen(one["x"]), 0, 4) for one in samples]
        expected = sum((one.T @ one).astype(np.float64) for one in rows)
        np.testing.assert_allclose(found[value], expected, rtol=1e-6)
