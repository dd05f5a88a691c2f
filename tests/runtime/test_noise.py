from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.noise import gumbel, uniform

_MASK = (1 << 64) - 1


def philox_4x64(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x64-10, written from the paper (Salmon et al., 2011)."""
    x, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
        x = [(b >> 64) ^ x[1] ^ k0, b & _MASK, (a >> 64) ^ x[3] ^ k1, a & _MASK]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & _MASK, (k1 + 0xBB67AE8584CAA73B) & _MASK
    return x


@pytest.mark.parametrize(("seed", "index", "position"), [(0, 0, 0), (2**64 - 1, 3, 17), (9, 1, 2)])
def test_noise_is_the_stated_word_of_the_stated_block(seed: int, index: int, position: int) -> None:
    values = uniform(seed, index, position, 11)
    for token in range(11):
        word = philox_4x64([token // 4 + 1, position, 0, 0], [seed, index])[token % 4]
        assert values[token] == ((word >> 11) + 0.5) / 2**53


def test_noise_of_a_token_does_not_depend_on_the_vocabulary() -> None:
    assert (uniform(5, 0, 3, 1000)[:10] == uniform(5, 0, 3, 10)).all()


def test_every_part_of_the_key_matters() -> None:
    base = uniform(1, 0, 0, 4)
    for other in (uniform(2, 0, 0, 4), uniform(1, 1, 0, 4), uniform(1, 0, 1, 4)):
        assert not np.isin(base, other).any()


def test_gumbel_moments() -> None:
    values = gumbel(3, 0, 0, 200_000)
    assert np.isfinite(values).all()
    assert abs(values.mean() - np.euler_gamma) < 4 * (np.pi / np.sqrt(6)) / np.sqrt(200_000)
    assert abs(values.var() - np.pi**2 / 6) < 0.03
