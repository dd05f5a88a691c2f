"""Steps from noise to a sample: DDIM without added noise (Song et al., 2020, arXiv:2010.02502).

It is Euler's method over the noise relative to the signal (Karras et al., 2022, arXiv:2206.00364,
section 3), so that schedulers of both names differ in where they put the levels, not in the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError
from optc.runtime.diffusion.conventions import NoiseLevels

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Steps:
    """The levels of a run of n steps.

    Attributes:
        times: f64[n], as the denoiser takes them.
        signal, noise: f64[n + 1], factors of the signal and of the noise in a sample, before each
            step and behind the last one; their squares add up to 1.
        start: Factor of the noise that a run begins with.
    """

    times: Float64
    signal: Float64
    noise: Float64
    start: float


def steps_of(levels: NoiseLevels, count: int) -> Steps:
    """The levels of ``count`` steps.

    Raises:
        RequestError: The model was trained on fewer.
    """
    power = np.asarray(levels.signal_power, np.float64)
    if not 1 <= count <= len(power):
        raise RequestError(
            f"{count} steps",
            where="steps",
            hint=f"1 to {len(power)}, on which the model was trained",
        )
    times = _times(levels, len(power), count)
    if levels.fractions:
        relative = np.interp(times, np.arange(len(power)), np.sqrt((1 - power) / power))
        chosen = 1 / (1 + relative**2)
    else:
        chosen = power[times.astype(np.int64)]
    last = 1.0 if levels.ends_clean else power[0]
    all_power = np.append(chosen, last)
    noise = np.sqrt(1 - all_power)
    whole = not levels.fractions or levels.spacing == "leading"
    return Steps(times, np.sqrt(all_power), noise, 1.0 if whole else float(noise[0]))


def _times(levels: NoiseLevels, trained: int, count: int) -> Float64:
    if levels.spacing == "leading":
        found = np.arange(count)[::-1] * (trained // count) + float(levels.offset)
        return np.minimum(found, trained - 1.0)
    if levels.spacing == "trailing":
        return np.round(trained - np.arange(count) * (trained / count)) - 1.0
    found = np.linspace(0, trained - 1, count)[::-1]
    return np.asarray(found if levels.fractions else np.round(found), np.float64)


def next_sample(
    levels: NoiseLevels, steps: Steps, index: int, sample: Float32, predicted: Float32
) -> Float32:
    """The sample behind step ``index``.

    Args:
        levels: Of the model.
        steps: Of the run.
        index: From 0.
        sample: f32[N, C, H, W] before the step.
        predicted: f32[N, C, H, W], the denoiser's output for it.
    """
    signal, noise = steps.signal[index], steps.noise[index]
    x, y = sample.astype(np.float64), predicted.astype(np.float64)
    if levels.prediction == "epsilon":
        clean, dirt = (x - noise * y) / signal, y
    elif levels.prediction == "sample":
        clean, dirt = y, (x - signal * y) / noise
    else:
        clean, dirt = signal * x - noise * y, signal * y + noise * x
    if levels.clip is not None:
        clean = np.clip(clean, -levels.clip, levels.clip)
    found = steps.signal[index + 1] * clean + steps.noise[index + 1] * dirt
    return found.astype(np.float32)
