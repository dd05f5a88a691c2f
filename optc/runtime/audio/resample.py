"""Changes the rate of a sound: a low pass of windowed sincs, one for each phase (Smith, Digital
Audio Resampling, 2002)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
#: Zero crossings of the sinc on each side, where the low pass ends relative to the lower rate's
#: half, and the window's shape: what lies above that half comes through with less than -80 dB.
_CROSSINGS, _ROLLOFF, _BETA = 32, 0.94, 9.0
#: Results that are computed at once, and the largest table of phases.
_BLOCK, _MOST_PHASES = 1 << 14, 1 << 14


def resample(samples: Float32, rate: int, wanted: int) -> Float32:
    """f32[n] at ``rate`` as f32[ceil(n · wanted / rate)] at ``wanted``; sample 0 stays where it is.

    Frequencies up to 0.94 of the lower rate's half stay, those above the half go.
    """
    if rate == wanted or not len(samples):
        return samples
    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    count = -(-len(samples) * up // down)
    scale = min(1.0, up / down) * _ROLLOFF  # the low pass ends at this part of the input's half
    reach = math.ceil(_CROSSINGS / scale)
    padded = np.concatenate([np.zeros(reach), samples, np.zeros(reach + 1 + down // up)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach)
    table = _taps(np.arange(up) / up, reach, scale) if up <= _MOST_PHASES else None
    found = np.empty(count, np.float32)
    for start in range(0, count, _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, count), dtype=np.int64) * down
        phases = numbers % up
        taps = _taps(phases / up, reach, scale) if table is None else table[phases]
        some = windows[numbers // up + 1]
        found[start : start + len(numbers)] = np.einsum("nk,nk->n", some, taps)
    return found


def _taps(fractions: Float64, reach: int, scale: float) -> Float64:
    """Weights [phases, 2 · reach] of the samples around a place that lies ``fractions`` behind
    one; the sum of each row is 1."""
    places = np.arange(1 - reach, reach + 1) - fractions[:, None]
    inside = np.clip(1 - (places / reach) ** 2, 0, None)
    taps = np.sinc(scale * places) * np.i0(_BETA * np.sqrt(inside))
    rows: Float64 = taps / taps.sum(axis=1, keepdims=True)
    return rows
