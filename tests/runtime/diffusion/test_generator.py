"""A generator of images over engines whose outputs are known: settings, guidance, batches, ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tokenizers

from optc.errors import RequestError
from optc.runtime.diffusion.conventions import DiffusionConventions, NoiseLevels
from optc.runtime.diffusion.generator import Drawing, ImageGenerator

POWER = tuple(float(x) for x in np.cumprod(1 - np.linspace(1e-4, 0.02, 20)))
SHAPE = (3, 2, 4)


class Engine:
    """Keeps its inputs, and answers by a rule."""

    def __init__(self, name: str, rule: Any) -> None:
        self.name, self.rule = name, rule
        self.inputs: list[Mapping[str, Any]] = []
        self.closed = False
        self.batch_invariant = False

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        self.inputs.append(inputs)
        return {self.name: self.rule(inputs)}

    def close(self) -> None:
        self.closed = True


def of_context(inputs: Mapping[str, Any]) -> Any:
    """As the sample to be found, the context's value at each pixel."""
    value = inputs["context"] if "context" in inputs else np.full(len(inputs["sample"]), 0.25)
    return np.ones_like(inputs["sample"]) * np.asarray(value, np.float32).reshape(-1, 1, 1, 1)


def words() -> tokenizers.Tokenizer:
    vocabulary = {"": 0, "dark": 1, "bright": 2, "odd": 3}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="odd")
    found = tokenizers.Tokenizer(model)
    found.enable_padding(length=1, pad_token="", pad_id=0)
    return found


def generator(
    *, prompts: bool = True, decoder: Engine | None = None, shape: tuple[int, int, int] = SHAPE
) -> tuple[ImageGenerator, Engine, Engine]:
    """Of dark, -0.5, and bright, 0.5; nothing is 0."""
    denoiser = Engine("predicted", of_context)
    values = np.array([0, -0.5, 0.5, 1], np.float32)
    encoder = Engine("context", lambda inputs: values[inputs["input_ids"][:, 0]])
    conventions = DiffusionConventions(NoiseLevels(POWER, "sample"), shape, 1 if prompts else None)
    own = (
        (encoder, decoder, conventions, words()) if prompts else (None, decoder, conventions, None)
    )
    return ImageGenerator(denoiser, *own, {}), denoiser, encoder  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("batch_size", one) for one in (0, -1)),
        *(("seed", one) for one in (-1, 1 << 63)),
        *(("guidance_scale", one) for one in (-0.001, 100.001, float("nan"))),
    ],
)
def test_settings_beyond_their_ranges(field: str, value: float) -> None:
    with pytest.raises(RequestError) as raised:
        Drawing(**{field: value})  # type: ignore[arg-type]
    assert raised.value.where == field


def test_settings_at_the_ends_of_their_ranges() -> None:
    Drawing(batch_size=1, seed=0, guidance_scale=0)
    Drawing(seed=(1 << 63) - 1, guidance_scale=100)
    assert Drawing() == Drawing(steps=30, guidance_scale=7.5, seed=0, batch_size=1)


def test_an_image_is_what_the_denoiser_says_it_is() -> None:
    """-1 is black and 1 is white; in the order of the prompts."""
    made, denoiser, encoder = generator()
    images = made.generate(["dark", "bright"], steps=3, guidance_scale=1, batch_size=2)
    assert (images.dtype, images.shape) == (np.uint8, (2, 2, 4, 3))
    assert np.unique(images[0]) == round(0.5 * 127.5)
    assert np.unique(images[1]) == round(1.5 * 127.5)
    assert [one["input_ids"].tolist() for one in encoder.inputs] == [[[1], [2]]]
    assert [one["time"].tolist() for one in denoiser.inputs] == [[12, 12], [6, 6], [0, 0]]


@pytest.mark.parametrize(("scale", "found"), [(0, 0.5), (1, 0.5), (1.5, 1.0), (3, 1.0)])
def test_guidance_leads_away_from_the_negative_prompt(scale: float, found: float) -> None:
    """To -0.5 + scale · (0.5 + 0.5), of which 1 at most is white; from 1 on downwards, not at
    all."""
    made, denoiser, encoder = generator()
    image = made.generate("bright", negative_prompt="dark", guidance_scale=scale, steps=1)
    guided = scale > 1
    assert encoder.inputs[0]["input_ids"].tolist() == ([[1], [2]] if guided else [[2]])
    assert len(denoiser.inputs[0]["sample"]) == (2 if guided else 1)
    assert np.unique(image) == round((found + 1) * 127.5)


def test_noise_is_of_the_seed_and_the_place() -> None:
    """However many images are computed together."""
    starts = []
    for batch_size in (1, 2, 5):
        made, denoiser, _ = generator(prompts=False)
        images = made.generate(5, steps=1, seed=3, batch_size=batch_size)
        assert len(images) == 5
        sizes = [len(one["sample"]) for one in denoiser.inputs]
        assert sizes == {1: [1] * 5, 2: [2, 2, 1], 5: [5]}[batch_size]
        starts.append(np.concatenate([one["sample"] for one in denoiser.inputs]))
    assert all(np.array_equal(one, starts[0]) for one in starts)
    for place, start in enumerate(starts[0]):
        expected = np.random.default_rng([3, place]).standard_normal(SHAPE).astype(np.float32)
        assert np.array_equal(start, expected)


def test_a_decoder_gets_the_sample_and_gives_the_image() -> None:
    grey = Engine("image", lambda inputs: inputs["latents"][:, :1] - 0.75)
    made, _, _ = generator(prompts=False, decoder=grey)
    image = made.generate(steps=2)
    assert image.shape == (1, 2, 4, 3)
    assert np.unique(image) == round(0.5 * 127.5)
    assert grey.inputs[0]["latents"].shape == (1, *SHAPE)


@pytest.mark.parametrize(
    ("takes", "given", "wanted"),
    [
        *((True, one, "takes prompts") for one in (1, [])),
        *((False, one, "takes a number of images") for one in ("dark", ["dark"], 0)),
    ],
)
def test_prompts_where_none_are_taken_and_the_other_way_round(
    takes: bool, given: Any, wanted: str
) -> None:
    made, _, _ = generator(prompts=takes)
    assert made.takes_prompts == takes
    with pytest.raises(RequestError, match=wanted):
        made.generate(given)


def test_one_image_is_the_default() -> None:
    made, _, _ = generator(prompts=False)
    assert len(made.generate(steps=1)) == 1


def test_a_closed_generator_has_closed_its_engines_and_says_so() -> None:
    decoder = Engine("image", lambda inputs: inputs["latents"])
    made, denoiser, encoder = generator(decoder=decoder)
    with made as same:
        assert same is made
    assert denoiser.closed
    assert encoder.closed
    assert decoder.closed
    with pytest.raises(RequestError, match="the engine is closed"):
        made.generate("dark", steps=1)
