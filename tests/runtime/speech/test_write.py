"""A transcript is written token by token, from logits that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.audio.conventions import Conventions
from optc.runtime.audio.mel import LogMel
from optc.runtime.encoded.request import Encoded
from optc.runtime.speech.write import Reading, Transcription, Writing

START, END, SILENT, SIZE = 0, 1, 2, 8
KNOWN = Conventions(
    features=LogMel(), start=START, end=END, no_speech=SILENT, languages={"en": 3, "de": 4}
)
HEARD = Encoded({}, 0)


def begun(language: int | None, known: Conventions = KNOWN) -> Transcription:
    how = Writing(lambda found: [START] if found is None else [START, found])
    return Transcription(HEARD, known, how, language, np.random.default_rng(0))


def likely(token: int, value: float = 5.0) -> np.ndarray:
    logits = np.zeros((1, SIZE), np.float32)
    logits[0, token] = value
    return logits


def chance(logits: np.ndarray, token: int) -> float:
    exact = np.exp(logits[0].astype(np.float64))
    return float(exact[token] / exact.sum())


def test_a_language_is_heard_first_and_silence_only_then() -> None:
    one = begun(None)
    assert one.prompt == [START]
    first = likely(4)
    assert one.take(first.copy()) == [4]
    assert one.language == 4
    assert one.no_speech == pytest.approx(chance(first, SILENT))
    assert one.take(likely(6)) == (6,)
    assert one.take(likely(SILENT)) == (SILENT,)
    assert one.no_speech == pytest.approx(chance(first, SILENT)), "what is said does not change it"
    assert one.take(likely(END)) == ()
    assert one.tokens == [6, SILENT]
    assert one.logprob == pytest.approx(np.log(chance(likely(6), 6)))


def test_a_language_that_is_given_is_not_heard() -> None:
    one = begun(3)
    assert one.prompt == [START, 3]
    both = np.concatenate([likely(4), likely(7)])
    assert one.take(both) == (7,)
    assert (one.language, one.tokens) == (3, [7])


def test_a_reading_keeps_its_logits() -> None:
    one = Reading(HEARD, [START, 5], 1)
    logits = likely(5)
    assert one.take(logits) == ()
    assert one.logits is logits
