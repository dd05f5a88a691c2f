"""What a transcriber gives besides transcripts: likeliest tokens, and inputs of its engines."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from msgspec import structs

from optc.errors import RequestError
from optc.runtime.audio.wav import Sound
from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.speech.write import Writer
from tests.serve.tensors.toys import SPEECH, Hears, writer

SOUND = Sound(np.sin(np.arange(500, dtype=np.float32)), 1000)
#: The start, German, to transcribe, no times.
PROMPT = [5, 7, 8, 10]


def test_its_prompt_goes_before_a_transcript_and_the_end_behind() -> None:
    transcriber = writer(first=1, second=2)
    transcript = transcriber.transcribe(SOUND)
    assert (transcript.text, transcript.tokens) == ("hello world", (1, 2))
    assert transcriber.prompt(transcript) == PROMPT
    assert transcriber.likeliest(SOUND, transcript) == [1, 2, SPEECH.end]
    assert writer(first=3, second=2).likeliest(SOUND, transcript) == [3, 2, SPEECH.end]


def test_calls_are_inputs_of_the_encoder_and_of_a_step_over_all_tokens() -> None:
    transcriber = writer()
    encoder, decoder = transcriber.calls(SOUND, transcriber.transcribe(SOUND))
    (features,) = encoder.values()
    assert features.shape == (1, 4, 100), "one window of a second"
    assert features[0, :, :50].std() > 0
    np.testing.assert_array_equal(decoder["input_ids"], [[*PROMPT, 1, 2]])
    assert decoder["past_0"].shape == (1, 1, 0, 1)
    assert decoder["cross_0"].shape == (1, 1, 2, 1)
    assert set(decoder) == {"input_ids", "past_0", "cross_0"}


def test_a_structure_has_no_room_for_times_of_a_long_sound() -> None:
    long = Sound(np.zeros(2500, np.float32), 1000)
    with pytest.raises(RequestError, match=r"the sound has 2\.5 seconds, and a sound longer"):
        writer().transcribe(long, choice=["hello", "goodbye"])
    whole = Sound(np.zeros(1000, np.float32), 1000)
    with pytest.raises(RequestError, match="this decoder writes whole batches"):
        writer().transcribe(whole, choice=["hello", "goodbye"])
    timeless = structs.replace(SPEECH, no_timestamps=None, languages={}, tasks={})
    with pytest.raises(RequestError, match="this decoder writes whole batches"):
        writer(conventions=timeless).transcribe(long, choice=["hello", "goodbye"])


def test_a_decoder_of_steps_has_no_such_inputs() -> None:
    transcript = writer().transcribe(SOUND)
    steps = Transcriber(Hears(), cast(Writer, object()), SPEECH, cast(Any, None), {})
    with pytest.raises(TypeError, match="takes no named tensors"):
        steps.calls(SOUND, transcript)


def test_a_closed_one_says_so() -> None:
    with writer() as transcriber:
        transcript = transcriber.transcribe(SOUND)
    for ask in (transcriber.calls, transcriber.likeliest):
        with pytest.raises(RequestError, match="the engine is closed"):
            ask(SOUND, transcript)
    with pytest.raises(RequestError, match="the engine is closed"):
        transcriber.transcribe(SOUND)
    transcriber.close()
