"""Rates are changed: tones stay, what the lower rate cannot hold goes."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.audio.resample import resample

RATES = [(8000, 16000), (11025, 16000), (22050, 16000), (44100, 16000), (48000, 16000)]


def tone(hertz: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate).astype(np.float32)


@pytest.mark.parametrize(("rate", "wanted"), [*RATES, (16000, 44100), (16001, 16000), (7, 5)])
def test_a_tone_is_the_same_tone(rate: int, wanted: int) -> None:
    hertz = 0.35 * min(rate, wanted)
    found, same = resample(tone(hertz, rate, 4000 / rate), rate, wanted), tone
    assert len(found) == -(-4000 * wanted // rate)
    expected = same(hertz, wanted, 2 + 4000 / rate)[: len(found)]
    inner = slice(len(found) // 8, -len(found) // 8)  # silence begins at the ends
    np.testing.assert_allclose(found[inner], expected[inner], atol=2e-4)


@pytest.mark.parametrize(("rate", "wanted"), [(44100, 16000), (48000, 16000), (22050, 16000)])
def test_what_the_lower_rate_cannot_hold_goes(rate: int, wanted: int) -> None:
    found = resample(tone(wanted * 0.52, rate), rate, wanted)
    assert np.abs(found[500:-500]).max() < 2e-4


def test_loudness_and_ends() -> None:
    ones = np.ones(1000, np.float32)
    np.testing.assert_allclose(resample(ones, 44100, 16000)[60:-60], 1, atol=1e-6)
    assert resample(ones, 16000, 16000) is ones
    assert len(resample(ones[:1], 48000, 16000)) == 1
    assert len(resample(ones[:0], 48000, 16000)) == 0


def test_blocks_and_phases_do_not_show() -> None:
    """More results than a block, and more phases than a table."""
    sound = np.random.default_rng(0).standard_normal(40_000).astype(np.float32)
    whole = resample(sound, 22051, 22050)
    part = resample(sound[:20_000], 22051, 22050)
    np.testing.assert_allclose(whole[:19_900], part[:19_900], atol=1e-5)
