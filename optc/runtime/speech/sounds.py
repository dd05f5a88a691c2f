"""Sounds as a transcriber takes them, and windows of their features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError
from optc.runtime.audio.wav import LOUDEST, RATES, Sound, read_wav

Float32 = npt.NDArray[np.float32]
#: What is taken for speech.
Speech = str | Path | Sound | Float32


def sound_of(speech: Speech, rate: int) -> Sound:
    """The sound that is taken; floats have the rate ``rate``.

    Raises:
        InputError: The file is none.
        RequestError: It is no sound.
    """
    if isinstance(speech, Sound):
        return _checked(speech)
    if isinstance(speech, str | Path):
        return read_wav(Path(speech))
    if not isinstance(speech, np.ndarray) or speech.ndim != 1 or speech.dtype.kind != "f":
        raise RequestError(
            "is no sound",
            where="speech",
            hint=f"a WAV file, optc.Sound(samples, rate), or floats [n] at {rate} a second",
        )
    return _checked(Sound(speech.astype(np.float32, copy=False), rate))


def _checked(sound: Sound) -> Sound:
    """``sound``, whose numbers make sense, as those of files do."""
    samples = np.asarray(sound.samples)
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise RequestError(
            f"has samples {samples.dtype}{list(samples.shape)}",
            where="speech",
            hint="floats [n] from -1 to 1 of one channel",
        )
    if not (np.abs(samples) <= LOUDEST).all():  # nor are numbers that are not finite
        raise RequestError(f"has samples that are no numbers up to {LOUDEST:g}", where="speech")
    if not RATES[0] <= sound.rate <= RATES[1]:
        raise RequestError(f"states a rate of {sound.rate} samples a second", where="speech")
    return sound


def cut(features: Float32, at: int, frames: int) -> Float32:
    """f32[mels, frames] from frame ``at``; zeros follow the end, as Whisper was trained."""
    found = features[:, at : at + frames]
    return np.pad(found, ((0, 0), (0, frames - found.shape[1])))
