"""Complex arithmetic of rotary embeddings as pairs of reals."""

from __future__ import annotations

import torch

from optc.importer.tracing.complex_pairs import Pair, real_pairs


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """x [B, S, H, D] turned by angles [B, S, D/2], as models spell it."""
    turns = torch.polar(torch.ones_like(angles), angles) * 1.5
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = torch.view_as_real(pairs * turns.unsqueeze(2).to(pairs.device)).flatten(3)
    assert pairs.shape == (*turned.shape[:-1], turned.shape[-1] // 2)
    again = torch.view_as_real(2 * (pairs * turns[:, :, None, :])).flatten(3)
    return turned + again


def test_products_are_those_of_complex_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 4, 8, generator=generator)
    angles = torch.randn(2, 3, 4, generator=generator)
    expected = rotated(x, angles)
    with real_pairs():
        assert isinstance(torch.polar(angles, angles), Pair)
        torch.testing.assert_close(rotated(x, angles), expected)
    assert torch.polar(angles, angles).is_complex(), "only while it lasts"
