"""Sounds that are given as arrays are checked as those of files are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optc.errors import RequestError
from optc.runtime.audio.wav import Sound
from optc.runtime.speech.sounds import sound_of

SAMPLES = np.linspace(-1, 1, 5, dtype=np.float32)


def test_floats_have_the_model_s_rate_and_sounds_their_own() -> None:
    assert sound_of(SAMPLES, 16000).rate == 16000
    given = Sound(SAMPLES, 8000)
    assert sound_of(given, 16000) is given


@pytest.mark.parametrize(
    ("speech", "problem"),
    [
        (np.array([0, np.inf], np.float32), "samples that are no numbers"),
        (Sound(np.array([np.nan], np.float32), 8000), "samples that are no numbers"),
        (Sound(np.zeros(3, np.int16), 8000), r"has samples int16\[3\]"),
        (Sound(SAMPLES[None], 8000), r"has samples float32\[1, 5\]"),
        (Sound(SAMPLES, 0), "states a rate of 0"),
        (np.zeros((2, 5), np.float32), "is no sound"),
        (None, "is no sound"),
    ],
)
def test_what_is_no_sound(speech: Any, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        sound_of(speech, 16000)
