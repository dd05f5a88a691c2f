"""PSNR and SSIM beside their definitions, window by window."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.gates.pictures.similarity import MOST_DB, psnr, ssim


def _pair(height: int, width: int, spread: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(height)
    one = random.integers(0, 256, (height, width, 3))
    other = np.clip(one + random.integers(-spread, spread + 1, one.shape), 0, 255)
    return one.astype(np.uint8), other.astype(np.uint8)


def _by_windows(one: np.ndarray, other: np.ndarray, side: int) -> float:
    at = np.arange(side) - side // 2
    line = np.exp(-(at**2) / (2 * 1.5**2))
    weights = np.outer(line, line) / line.sum() ** 2
    found = []
    height, width, channels = one.shape
    for channel in range(channels):
        for y in range(height - side + 1):
            for x in range(width - side + 1):
                a = one[y : y + side, x : x + side, channel].astype(np.float64)
                b = other[y : y + side, x : x + side, channel].astype(np.float64)
                ma, mb = (weights * a).sum(), (weights * b).sum()
                va, vb = (weights * (a - ma) ** 2).sum(), (weights * (b - mb) ** 2).sum()
                both = (weights * (a - ma) * (b - mb)).sum()
                above = (2 * ma * mb + 2.55**2) * (2 * both + 7.65**2)
                found.append(above / ((ma**2 + mb**2 + 2.55**2) * (va + vb + 7.65**2)))
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("height", "width", "side"), [(13, 17, 11), (11, 11, 11), (8, 9, 7), (1, 4, 1)]
)
def test_ssim_is_the_mean_over_windows(height: int, width: int, side: int) -> None:
    one, other = _pair(height, width, 40)
    assert ssim(one, other) == pytest.approx(_by_windows(one, other, side), abs=1e-9)


def test_no_difference() -> None:
    one, _ = _pair(12, 12, 1)
    assert ssim(one, one) == pytest.approx(1)
    assert psnr(one, one) == MOST_DB


def test_psnr() -> None:
    one = np.full((4, 5, 3), 100, np.uint8)
    other = one.copy()
    other[0, 0, 0] = 110
    assert psnr(one, other) == pytest.approx(10 * np.log10(255**2 / (100 / 60)))
    assert psnr(one, other) == psnr(other, one)
