"""Weights as they are trained: masks, LoRA, and rounding that begins where the quantizer ended."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from optc.compiling.training.weights import FullWeight, LoraWeight, RoundedWeight, pruned_mask
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.scheme import Scheme
from tests.support.ir_text import f32

SCHEMES = [
    Scheme(8, 0, True),
    Scheme(4, 32, True),
    Scheme(4, 32, False),
    *(Scheme(bits, 32, False, True) for bits in (2, 3, 4, 6)),
]


def half_zero(n: int, k: int) -> torch.Tensor:
    rows = f32(n, k)
    rows[:, ::2] = 0
    return torch.from_numpy(rows)


def test_zeros_of_a_pruned_matrix_stay_zero() -> None:
    weight = FullWeight(half_zero(4, 8), trained=True)
    optimizer = torch.optim.AdamW(weight.trained(), lr=0.1, weight_decay=0.0)
    for _ in range(3):
        (weight() - 1).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert not weight()[:, ::2].any()
    assert (weight()[:, 1::2] - half_zero(4, 8)[:, 1::2]).abs().min() > 0.01


def test_a_few_zeros_are_no_pruning() -> None:
    rows = torch.ones(4, 64)
    rows[0, 0] = 0
    assert pruned_mask(rows) is None
    assert pruned_mask(torch.zeros(64)) is None  # a bias


def test_lora_begins_at_the_weights_and_keeps_zeros() -> None:
    rows = half_zero(6, 8)
    weight = LoraWeight(rows.clone(), 2, seed=1)
    assert torch.equal(weight(), rows)
    with torch.no_grad():
        weight.b += 0.5
    assert not weight()[:, ::2].any()
    assert not torch.equal(weight(), rows)
    assert torch.linalg.matrix_rank(LoraWeight(f(6, 8), 2, seed=1).a) == 2


def f(*shape: int) -> torch.Tensor:
    return torch.from_numpy(f32(*shape))


def rounded(scheme: Scheme, seed: int = 0) -> tuple[RoundedWeight, np.ndarray, np.ndarray]:
    rows = f32(8, 64, seed=seed)
    moved = rows + 0.3 * f32(8, 64, seed=seed + 1)  # as GPTQ moves them
    tile = quantize_rows(moved, scheme)
    weight = RoundedWeight(torch.from_numpy(rows), tile, scheme.limits, scheme.group_size)
    return weight, dequantize_rows(tile, scheme.group_size), rows


@pytest.mark.parametrize("scheme", SCHEMES, ids=[one.label for one in SCHEMES])
def test_rounding_begins_with_the_quantizers_codes(scheme: Scheme) -> None:
    weight, start, rows = rounded(scheme)
    np.testing.assert_allclose(weight().detach().numpy(), start, rtol=1e-6, atol=1e-7)
    again = weight.tile()
    np.testing.assert_array_equal(again.values, weight.kind.values)
    for got, wanted in zip(again, weight.kind, strict=True):
        if wanted is None:
            assert got is None
        else:
            np.testing.assert_array_equal(got, wanted)
            assert got.dtype == wanted.dtype
    # what is trained lies as near to the weights as the codes let it
    latent = weight.rows.detach().reshape(8, 64).numpy()
    assert np.abs(latent - rows).mean() < np.abs(start - rows).mean()


@pytest.mark.parametrize("scheme", SCHEMES, ids=[one.label for one in SCHEMES])
def test_what_is_stored_is_what_was_used(scheme: Scheme) -> None:
    weight, _, _ = rounded(scheme)
    with torch.no_grad():
        for index, parameter in enumerate((*weight.trained(), *weight.scales())):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index))
            parameter += 0.4 * noise
    tile = weight.tile()
    values = dequantize_rows(tile, scheme.group_size)
    np.testing.assert_allclose(weight().detach().numpy(), values, rtol=1e-5, atol=1e-6)
    if scheme.group_size and not scheme.integer_scales:
        np.testing.assert_array_equal(tile.scales, tile.scales.astype(np.float16))
    if tile.group_scales is not None and tile.zero_points is not None:
        most = scheme.limits[1] * tile.group_scales.astype(int) - tile.zero_points
        assert most.max() <= 127
        assert tile.group_scales.min() >= 1
    assert not np.array_equal(tile.values, weight.kind.values)
