from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.sampling.noise import gumbel, least_word, words

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
    drawn = words(seed, index, position, 11)
    for token in range(11):
        expected = philox_4x64([token // 4 + 1, position, 0, 0], [seed, index])[token % 4]
        assert int(drawn[token]) == expected
        uniform = ((expected >> 12) + 0.5) / 2**52
        assert gumbel(drawn)[token] == pytest.approx(-np.log(-np.log(uniform)), rel=1e-14)


def test_noise_of_a_token_does_not_depend_on_the_vocabulary() -> None:
    assert (words(5, 0, 3, 1000)[:10] == words(5, 0, 3, 10)).all()


def test_every_part_of_the_key_matters() -> None:
    base = words(1, 0, 0, 4)
    for other in (words(2, 0, 0, 4), words(1, 1, 0, 4), words(1, 0, 1, 4)):
        assert not np.isin(base, other).any()


def test_gumbel_moments_and_extremes() -> None:
    values = gumbel(words(3, 0, 0, 200_000))
    assert abs(values.mean() - np.euler_gamma) < 4 * (np.pi / np.sqrt(6)) / np.sqrt(200_000)
    assert abs(values.var() - np.pi**2 / 6) < 0.03
    assert np.isfinite(gumbel(np.array([0, _MASK], np.uint64))).all()


@pytest.mark.parametrize("noise", [-50.0, -6.0, -3.7, 0.0, 5.0, 20.0, 36.0, 37.4, 60.0])
def test_words_below_the_least_have_less_noise(noise: float) -> None:
    least = int(least_word(noise))
    below = np.array([max(0, least - 1), least // 2], np.uint64)
    assert least == 0 or (gumbel(below) < noise).all()
    # And it is no more than a few steps too low.
    above = np.array([min(least + (4 << 12), _MASK)], np.uint64)
    assert least == 0 or noise > 30 or gumbel(above)[0] >= noise


def test_the_rarest_words_are_in_the_middle_of_their_steps() -> None:
    drawn = np.array([0, 1 << 12, _MASK], np.uint64)
    uniform = np.array([0.5, 1.5, 2**52 - 0.5]) / 2**52
    assert gumbel(drawn) == pytest.approx(-np.log(-np.log(uniform)), rel=1e-12)


@pytest.mark.parametrize("noise", [-3.5, -1.0, 0.0, 5.0, 20.0])
def test_the_least_word_leaves_out_nearly_all_that_have_less_noise(noise: float) -> None:
    least = int(least_word(noise))
    assert least > 0
    assert gumbel(np.array([least + (4 << 12)], np.uint64))[0] >= noise


def test_no_noise_is_too_low_to_be_asked_for() -> None:
    assert least_word(-1e6) == 0
