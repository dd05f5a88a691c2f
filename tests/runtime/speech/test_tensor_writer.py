"""Transcripts by a decoder of named tensors: what its logits are read for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
from msgspec import structs

from optc.runtime.audio.wav import Sound
from optc.runtime.encoded.tensor_decoder import TensorDecoder
from optc.runtime.executable.tensors import Array
from optc.runtime.speech.tensor_writer import TensorWriter
from optc.runtime.speech.transcriber import Transcriber
from tests.serve.tensors.toys import SPEECH, Hears, Says, writer

SOUND = Sound(np.zeros(500, np.float32), 1000)
#: Of nobody who speaks; it stands for no word.
SILENCE = 0


class Doubts(Says):
    """Behind so many tokens it holds most likely that nobody speaks."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        found = super().run(inputs)
        past, count = inputs["past_0"].shape[2], inputs["input_ids"].shape[1]
        if past <= self.place < past + count:
            found["logits"][:, self.place - past, SILENCE] = 8
        return found


def text(place: int, **wanted: Any) -> str:
    known = structs.replace(SPEECH, no_speech=SILENCE)
    decoder = TensorWriter(TensorDecoder(cast(Any, Doubts(place))))
    tokenizer = writer()._tokenizer
    transcriber = Transcriber(cast(Any, Hears()), decoder, known, tokenizer, {})
    return transcriber.transcribe(SOUND, **wanted).text


@pytest.mark.parametrize("language", [None, "de"])
def test_whether_somebody_speaks_is_read_behind_the_first_token(language: str | None) -> None:
    """Whether its language is asked, and the start is read alone, or it is known."""
    asked: dict[str, Any] = {"language": language, "logprob_threshold": 0.0}
    assert text(0, no_speech_threshold=0.2, **asked) == ""
    assert text(0, no_speech_threshold=0.3, **asked) == "hello world", "it holds 0.27 likely"
    assert text(0, no_speech_threshold=None, **asked) == "hello world"
    for place in (1, 2, 3):
        assert text(place, no_speech_threshold=0.2, **asked) == "hello world"


def test_who_is_sure_of_the_words_is_not_silent() -> None:
    assert text(0, no_speech_threshold=0.2, logprob_threshold=-1.0) == "hello world"


@pytest.mark.parametrize(
    ("never", "said"),
    [
        ({}, "hello world"),
        ({"suppressed": (1,)}, "nought world"),
        ({"suppressed": (2,)}, "hello nought"),
        ({"suppressed_first": (1,)}, "nought world"),
        ({"suppressed_first": (2,)}, "hello world"),
    ],
)
def test_tokens_that_may_not_come_next_are_not_written(never: dict[str, Any], said: str) -> None:
    made = writer(conventions=structs.replace(SPEECH, **never))
    assert made.transcribe(SOUND, language="de").text == said
