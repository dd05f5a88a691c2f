"""Figures of a transcriber beside that of its source: toys that say two words of any sound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from optc.artifact.tasks.transcription import TRANSCRIPTION
from optc.proof.gates.measure import GateResult
from optc.proof.gates.speech.measure import measure_transcriber
from optc.runtime.audio.wav import Sound
from optc.runtime.speech.transcriber import Transcriber
from tests.serve.tensors.toys import SPEECH, writer

#: hello, world, goodbye
HELLO, WORLD, BYE = 1, 2, 3


def sound(seconds: float = 0.5, text: str = "") -> Sound:
    return Sound(np.zeros(int(seconds * 1000), np.float32), 1000, text)


def measured(
    found: Transcriber,
    reference: Transcriber,
    *sounds: Sound,
    bounds: Mapping[str, float | None] = {},
) -> dict[str, GateResult]:
    results = measure_transcriber(found, reference, reference, sounds, bounds, "one")
    assert [one.name for one in results] == list(TRANSCRIPTION.gates)
    assert {one.engine for one in results} == {"one"}
    return {one.name: one for one in results}


def figures(*given: Any, **bounds: float | None) -> dict[str, float | None]:
    return {name: one.value for name, one in measured(*given, bounds=bounds).items()}


def test_the_same_words_are_without_any_error() -> None:
    assert figures(writer(), writer(), sound(), sound()) == {
        "token_agreement": 1,
        "transcript_agreement": 1,
        "word_error_rate": 0,
        "word_error_rate_added": 0,
        "transcription_speedup": None,
    }


def test_another_word_counts_in_every_figure() -> None:
    found = figures(writer(HELLO, BYE), writer(HELLO, WORLD), sound(), sound())
    assert found["token_agreement"] == pytest.approx(2 / 3), "of two words and the end"
    assert found["transcript_agreement"] == 0
    assert found["word_error_rate"] == found["word_error_rate_added"] == 0.5


def test_errors_that_the_source_makes_too_are_not_added() -> None:
    said = sound(text="Hello, world!")
    engine, source = writer(HELLO, WORLD), writer(BYE, WORLD)
    assert figures(engine, source, said)["word_error_rate_added"] == -0.5
    assert figures(source, engine, said)["word_error_rate_added"] == 0.5
    assert figures(source, source, said)["word_error_rate_added"] == 0
    assert figures(source, source, said)["word_error_rate"] == 0


def test_speed_is_measured_where_it_has_a_bound() -> None:
    @dataclass
    class Counts:
        one: Transcriber
        calls: int = 0

        def __getattr__(self, name: str) -> Any:
            self.calls += name == "transcribe"
            return getattr(self.one, name)

    found, reference, baseline = Counts(writer()), Counts(writer()), Counts(writer())
    three: Any = (found, reference, baseline)
    results = measure_transcriber(*three, [sound()], {"transcription_speedup": 0.0}, "one")
    assert results[-1].name == "transcription_speedup"
    assert results[-1].passed
    assert (found.calls, reference.calls, baseline.calls) == (3, 0, 3)
    measure_transcriber(*three, [sound()], {"word_error_rate": 0.0}, "one")
    assert (found.calls, baseline.calls) == (3, 3), "nobody asked"


def test_sounds_of_several_windows_have_no_tokens_to_agree_on() -> None:
    assert figures(writer(), writer(), sound(2.5))["token_agreement"] is None
    assert figures(writer(HELLO, BYE), writer(), sound(2.5), sound())[
        "token_agreement"
    ] == pytest.approx(2 / 3)


def test_the_end_of_a_transcript_that_was_cut_off_does_not_count() -> None:
    """A prompt of four tokens, two words and no room for the end."""
    short = structs.replace(SPEECH, most_tokens=6)
    found = measured(writer(HELLO, BYE, short), writer(HELLO, WORLD, short), sound())
    assert found["token_agreement"].value == 0.5
    whole = structs.replace(SPEECH, most_tokens=7)
    found = measured(writer(HELLO, BYE, whole), writer(HELLO, WORLD, whole), sound())
    assert found["token_agreement"].value == pytest.approx(2 / 3)


def test_bounds_are_judged_and_what_has_no_words_is_told() -> None:
    bounds = {"word_error_rate": 0.4, "transcript_agreement": 0.0, "token_agreement": 0.9}
    found = measured(writer(HELLO, BYE), writer(HELLO, WORLD), sound(), bounds=bounds)
    assert [found[name].passed for name in bounds] == [False, True, False]
    assert found["word_error_rate"].reason == "0.5 is above the bound 0.4"
    silent = measured(writer(), writer(), sound(0), bounds=bounds)
    assert silent["word_error_rate"].value is None
    assert silent["word_error_rate"].reason == "no sound has words"
    assert silent["word_error_rate_added"].value is None
    assert silent["word_error_rate_added"].reason == "", "nobody asked"
