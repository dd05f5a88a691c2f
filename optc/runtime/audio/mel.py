"""Whisper's features of a sound: logarithms of a mel spectrogram (Radford et al., Robust Speech
Recognition via Large-Scale Weak Supervision, 2022, arXiv:2212.04356, section 2.2)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
#: Frames that are transformed at once.
_BLOCK = 3000
#: Least power, and the range below the largest logarithm.
_FLOOR, _RANGE = 1e-10, 8.0
#: Slaney's scale of mels is straight up to 1000 Hz, which is 15 mels, then a logarithm.
_STRAIGHT_HZ, _STRAIGHT_MELS, _STEP = 1000.0, 15.0, np.log(6.4) / 27.0
#: The highest frequency, whatever the rate.
_HIGHEST_HZ = 8000.0

Small = Annotated[int, Meta(ge=1, le=1 << 20)]


class LogMel(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of log-mel features.

    Attributes:
        rate: Samples a second of the sound.
        mels: Rows of the features.
        window: Samples of a frame, at least 2.
        hop: Samples from frame to frame.
        seconds: Of the window that a model takes at once.
    """

    rate: Small = 16_000
    mels: Small = 80
    window: Annotated[int, Meta(ge=2, le=1 << 20)] = 400
    hop: Small = 160
    seconds: Annotated[int, Meta(ge=1, le=3600)] = 30

    @property
    def frames(self) -> int:
        """Columns of the features of a window that a model takes."""
        return self.seconds * self.rate // self.hop

    def features(self, samples: Float32) -> Float32:
        """f32[mels, frames] of f32[n] at `rate`: as many frames as hops fit in, at least those of
        a whole window, for which the sound is followed by silence.

        A value is (max(log10 power, largest - 8) + 4) / 4; the largest is that of all frames.
        """
        least = self.seconds * self.rate
        silence = np.zeros(max(0, least - len(samples)), np.float32)
        around = self.window // 2
        padded = np.pad(np.concatenate([samples, silence]), around, mode="reflect")
        count = (len(padded) - 2 * around) // self.hop
        shape = np.hanning(self.window + 1)[:-1]
        views = np.lib.stride_tricks.sliding_window_view(padded, self.window)[:: self.hop]
        heard = min(count, -(-(around + len(samples)) // self.hop))  # others are silent
        filters = mel_filters(self)
        found = np.full((self.mels, count), np.log10(_FLOOR), np.float32)
        for start in range(0, heard, _BLOCK):
            frames = views[start : min(start + _BLOCK, heard)]
            powers = np.abs(np.fft.rfft(frames * shape)) ** 2
            found[:, start : start + len(frames)] = np.log10(np.maximum(powers @ filters, _FLOOR).T)
        return ((np.maximum(found, found.max() - _RANGE) + 4) / 4).astype(np.float32)


def mel_filters(how: LogMel) -> Float64:
    """Triangles f64[window // 2 + 1, mels] of equal area over the frequencies of a transform; their
    corners are evenly spaced in mels from 0 to 8000 Hz (Slaney, Auditory Toolbox, 1998)."""
    frequencies = np.linspace(0, how.rate // 2, how.window // 2 + 1)
    highest = _STRAIGHT_MELS + np.log(_HIGHEST_HZ / _STRAIGHT_HZ) / _STEP
    corners = _hertz(np.linspace(0, highest, how.mels + 2))
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    rising = (frequencies[:, None] - left) / (middle - left)
    falling = (right - frequencies[:, None]) / (right - middle)
    filters: Float64 = np.maximum(0, np.minimum(rising, falling)) * (2 / (right - left))
    return filters


def _hertz(mels: Float64) -> Float64:
    straight = mels * _STRAIGHT_HZ / _STRAIGHT_MELS
    beyond = _STRAIGHT_HZ * np.exp(_STEP * (mels - _STRAIGHT_MELS))
    return np.where(mels < _STRAIGHT_MELS, straight, beyond)
