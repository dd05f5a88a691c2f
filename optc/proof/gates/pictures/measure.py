"""Measures a generator of images beside the one of its source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.artifact.tasks.image_generation import IMAGE_GENERATION
from optc.artifact.tasks.task import SPEED
from optc.proof.gates.in_turns import speedup
from optc.proof.gates.measure import GateResult, judge
from optc.proof.gates.pictures.similarity import psnr, ssim
from optc.runtime.diffusion.generator import ImageGenerator
from optc.runtime.executable.tensors import TensorsExecutable

Array = npt.NDArray[Any]
#: Steps of an image.
STEPS = 8
#: Speed is the median over so many turns of images of so many steps.
_TURNS, _TIMED_STEPS = 3, 2
#: Of outputs without a difference, decibels.
_MOST_DB = 200.0
_SPEEDUP = IMAGE_GENERATION.of(SPEED)[0]


class Recorded:
    """An executable that keeps what it was given and gave.

    Attributes:
        calls: Inputs and outputs, in order.
    """

    batch_invariant = False

    def __init__(self, executable: TensorsExecutable) -> None:
        self._executable = executable
        self.calls: list[tuple[Mapping[str, Array], dict[str, Array]]] = []

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name."""
        found = self._executable.run(inputs)
        self.calls.append((dict(inputs), found))
        return found

    def close(self) -> None:
        """Close the executable."""
        self._executable.close()


@dataclasses.dataclass(frozen=True)
class Expected:
    """Images and states of the source.

    Attributes:
        prompts: Of the images, or their number.
        images: u8[N, H, W, 3].
        calls: Inputs and outputs of its denoiser.
    """

    prompts: Sequence[str] | int
    images: npt.NDArray[np.uint8]
    calls: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]]


def expected_of(
    reference: ImageGenerator, denoiser: Recorded, prompts: Sequence[str] | int
) -> Expected:
    """Images of the source, and the states that its denoiser, ``denoiser``, went through."""
    images = reference.generate(prompts, steps=STEPS)
    return Expected(prompts, images, tuple(denoiser.calls))


def measure_generator(
    found: ImageGenerator,
    denoiser: TensorsExecutable,
    expected: Expected,
    baseline: ImageGenerator,
    bounds: Mapping[str, float | None],
    engine: str,
) -> tuple[GateResult, ...]:
    """Verdicts of the task's measures, in order.

    Args:
        found: With the engines.
        denoiser: The one of ``found``.
        expected: Of the source.
        baseline: With the float32 graphs in ONNX Runtime, whose speed is 1.
        bounds: Of the recipe.
        engine: The denoiser's name.
    """
    images = found.generate(expected.prompts, steps=STEPS)
    pairs = list(zip(images, expected.images, strict=True))
    values: dict[str, float | None] = {
        "psnr_db": float(np.mean([psnr(one, other) for one, other in pairs])),
        "ssim": float(np.mean([ssim(one, other) for one, other in pairs])),
        "step_sqnr_db": _sqnr(denoiser, expected),
    }
    if _SPEEDUP in bounds:
        one = 1 if isinstance(expected.prompts, int) else expected.prompts[:1]
        values[_SPEEDUP] = speedup(
            lambda: found.generate(one, steps=_TIMED_STEPS),
            lambda: baseline.generate(one, steps=_TIMED_STEPS),
            _TURNS,
        )
    verdicts = (judge(name, values.get(name), bounds.get(name)) for name in IMAGE_GENERATION.gates)
    return tuple(dataclasses.replace(one, engine=engine) for one in verdicts)


def _sqnr(denoiser: TensorsExecutable, expected: Expected) -> float:
    """At the reference's own states: errors do not add up over steps."""
    power = error = 0.0
    for inputs, outputs in expected.calls:
        ours = denoiser.run(inputs)
        for name, wanted in outputs.items():
            wide = wanted.astype(np.float64)
            power += float(np.sum(wide**2))
            error += float(np.sum((ours[name] - wide) ** 2))
    if not np.isfinite(error):
        return float("nan")
    return _MOST_DB if error == 0 else min(_MOST_DB, 10 * float(np.log10(power / error)))
