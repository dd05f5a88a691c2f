"""`ImageGenerator`: prompts become images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError
from optc.runtime.checks import checked_texts
from optc.runtime.diffusion.conventions import DiffusionConventions
from optc.runtime.diffusion.solver import next_sample, steps_of
from optc.runtime.executable.tensors import TensorsExecutable
from optc.system.closing import Closing

if TYPE_CHECKING:
    import tokenizers

Float32 = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]
#: Names of inputs and outputs of the engines.
SAMPLE, TIME, CONTEXT, TOKENS = "sample", "time", "context", "input_ids"
PREDICTED, LATENTS, IMAGE = "predicted", "latents", "image"
_MOST_SEED = 1 << 63


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Settings for the generation of images.

    Attributes:
        steps: Of the denoiser for an image.
        guidance_scale: How far a prompt's prediction is followed away from that of the negative
            prompt (Ho and Salimans, 2022, arXiv:2207.12598); with 1 or less, the negative prompt
            is not computed.
        negative_prompt: What an image is led away from.
        seed: Of the noise. Image i of a call has the noise of the seed and i.
        batch_size: Images that are computed together.
    """

    steps: int = 30
    guidance_scale: float = 7.5
    negative_prompt: str = ""
    seed: int = 0
    batch_size: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise RequestError(
                f"{self.batch_size} images at once", where="batch_size", hint="at least 1"
            )
        if not 0 <= self.seed < _MOST_SEED:
            raise RequestError(f"the seed {self.seed}", where="seed", hint="0 to 2^63 - 1")
        if not 0 <= self.guidance_scale <= 100:
            raise RequestError(
                f"the scale {self.guidance_scale}", where="guidance_scale", hint="0 to 100"
            )


class DrawingChanges(TypedDict, total=False):
    """Fields of `Drawing`."""

    steps: int
    guidance_scale: float
    negative_prompt: str
    seed: int
    batch_size: int


class ImageGenerator(Closing):
    """A model that makes images.

        with optc.load("artifacts/sd-turbo-diffusion-fp16") as generator:
            pixels = generator.generate("a lighthouse at night", steps=4, guidance_scale=1)

    Calls of several threads run side by side.

    Attributes:
        info: The engines' names, backend and target, and why others were not taken.
        conventions: Of the model's noise and shapes.
    """

    def __init__(
        self,
        denoiser: TensorsExecutable,
        encoder: TensorsExecutable | None,
        decoder: TensorsExecutable | None,
        conventions: DiffusionConventions,
        tokenizer: tokenizers.Tokenizer | None,
        info: Mapping[str, Any],
    ) -> None:
        self._denoiser: TensorsExecutable | None = denoiser
        self._encoder, self._decoder = encoder, decoder
        self._tokenizer = tokenizer
        self.conventions = conventions
        self.info = info

    @property
    def takes_prompts(self) -> bool:
        """True if images are made of prompts; else of noise alone."""
        return self._encoder is not None

    def generate(
        self, prompts: str | Sequence[str] | int = 1, **drawing: Unpack[DrawingChanges]
    ) -> Pixels:
        """Images u8[N, H, W, 3], red, green and blue, in the order of the prompts.

        Args:
            prompts: One or several; of a model that takes none, how many images.
            **drawing: Fields of `Drawing` that differ from its defaults.

        Raises:
            RequestError: A value is not usable, prompts are missing or not taken, or the engine is
                closed.
        """
        how = Drawing(**drawing)
        texts = [prompts] if isinstance(prompts, str) else prompts
        count = texts if isinstance(texts, int) else len(texts)
        if isinstance(texts, int) == self.takes_prompts or count < 1:
            wanted = "prompts" if self.takes_prompts else "a number of images"
            raise RequestError(f"takes {wanted}", where="prompts", hint="at least one")
        found = []
        for first in range(0, count, how.batch_size):
            places = range(first, min(first + how.batch_size, count))
            chosen = None if isinstance(texts, int) else [texts[place] for place in places]
            found.append(self._batch(places, chosen, how))
        return np.concatenate(found)

    def close(self) -> None:
        """Free the engines."""
        for engine in (self._denoiser, self._encoder, self._decoder):
            if engine is not None:
                engine.close()
        self._denoiser = None

    def _batch(self, places: range, prompts: Sequence[str] | None, how: Drawing) -> Pixels:
        steps = steps_of(self.conventions.levels, how.steps)
        guided = prompts is not None and how.guidance_scale > 1
        context = None if prompts is None else self._context(prompts, how, guided=guided)
        sample = np.float32(steps.start) * np.stack(
            [self._noise(how.seed, place) for place in places]
        )
        for index, time in enumerate(steps.times):
            predicted = self._predict(sample, float(time), context, how, guided=guided)
            sample = next_sample(self.conventions.levels, steps, index, sample, predicted)
        image = sample if self._decoder is None else self._decoder.run({LATENTS: sample})[IMAGE]
        return _pixels(image)

    def _predict(
        self, sample: Float32, time: float, context: Float32 | None, how: Drawing, *, guided: bool
    ) -> Float32:
        if self._denoiser is None:
            raise RequestError("the engine is closed", where="prompts", hint="load it again")
        given = np.concatenate([sample, sample]) if guided else sample
        inputs = {SAMPLE: given, TIME: np.full(len(given), time, np.float32)}
        if context is not None:
            inputs[CONTEXT] = context
        found = self._denoiser.run(inputs)[PREDICTED]
        if not guided:
            return found
        away, wanted = np.split(found, 2)
        led: Float32 = away + np.float32(how.guidance_scale) * (wanted - away)
        return led

    def _context(self, prompts: Sequence[str], how: Drawing, *, guided: bool) -> Float32:
        """States of the encoder, those of the negative prompt first."""
        if self._encoder is None or self._tokenizer is None:
            raise RequestError("takes no prompts", where="prompts")
        texts = [how.negative_prompt] * len(prompts) if guided else []
        given = checked_texts([*texts, *prompts])
        ids = np.array([self._tokenizer.encode(text).ids for text in given], np.int64)
        return self._encoder.run({TOKENS: ids})[CONTEXT]

    def _noise(self, seed: int, place: int) -> Float32:
        drawn = np.random.default_rng([seed, place]).standard_normal(self.conventions.shape)
        return drawn.astype(np.float32)


def _pixels(image: Float32) -> Pixels:
    """u8[N, H, W, 3] of f32[N, 3 or 1, H, W] from -1 to 1."""
    scaled = np.clip((image.astype(np.float64) + 1) * 127.5, 0, 255)
    found = np.round(scaled).astype(np.uint8).transpose(0, 2, 3, 1)
    return found if found.shape[-1] == 3 else np.repeat(found[..., :1], 3, axis=-1)
