"""What may be said next is what transformers' processors let through."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from optc.errors import RequestError
from optc.runtime.audio.conventions import Conventions
from optc.runtime.audio.mel import LogMel
from optc.runtime.speech.rules import LanguageRules, SpeechRules, forbid

END, NO_TIMES, SIZE = 20, 24, 60
T = NO_TIMES + 1
KNOWN = Conventions(features=LogMel(), start=21, end=END, no_timestamps=NO_TIMES, most_first_time=9)


@pytest.mark.parametrize(
    "said",
    [[], [T], [T, 1], [T, 1, 2, T + 5], [T, 1, T + 5, T + 5], [T, 1, T + 5, T + 7, 3], [T + 30, 1]],
)
@pytest.mark.parametrize("bias", [-8.0, 0.0, 8.0])
def test_times(said: list[int], bias: float) -> None:
    config = SimpleNamespace(
        no_timestamps_token_id=NO_TIMES, eos_token_id=END, bos_token_id=END,
        max_initial_timestamp_index=9,
    )  # fmt: skip
    processor = WhisperTimeStampLogitsProcessor(config, begin_index=2)
    for seed in range(20):
        logits = np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
        logits[T:] += bias
        ids = torch.tensor([[21, 22, *said]])
        wanted = processor(ids, torch.from_numpy(logits.copy())[None])[0].numpy()
        forbid(logits, SpeechRules(KNOWN, 2, timestamps=True).after([21, 22, *said]))
        np.testing.assert_array_equal(logits, wanted)


def test_tokens_that_are_never_said_or_not_first() -> None:
    known = Conventions(features=LogMel(), start=0, end=1, suppressed=(3,), suppressed_first=(4, 1))
    first, later = np.zeros(6, np.float32), np.zeros(6, np.float32)
    rules = SpeechRules(known, 1, timestamps=False)
    forbid(first, rules.after([0]))
    forbid(later, rules.after([0, 5]))
    assert np.isinf(first).tolist() == [False, True, False, True, True, False]
    assert np.isinf(later).tolist() == [False, False, False, True, False, False]


def test_languages() -> None:
    known = Conventions(features=LogMel(), start=0, end=1, languages={"en": 4, "de": 2, "fr": 3})
    logits = np.zeros(7, np.float32)
    forbid(logits, LanguageRules(known).after([0]))
    assert np.isfinite(logits).tolist() == [False, False, True, True, True, False, False]


def test_prompts() -> None:
    known = Conventions(
        features=LogMel(), start=0, end=1, languages={"en": 2}, tasks={"transcribe": 3},
        no_timestamps=4,
    )  # fmt: skip
    assert known.prompt(known.language("EN"), "transcribe", timestamps=False) == [0, 2, 3, 4]
    assert known.prompt(2, "transcribe", timestamps=True) == [0, 2, 3]
    with pytest.raises(RequestError, match="no task 'translate'"):
        known.prompt(2, "translate", timestamps=False)
    plain = Conventions(features=LogMel(), start=0, end=1)
    assert plain.prompt(plain.language(None), "transcribe", timestamps=False) == [0]
    with pytest.raises(RequestError, match="knows no times"):
        plain.prompt(None, "transcribe", timestamps=True)
    with pytest.raises(RequestError, match="knows one language"):
        plain.language("de")
