"""Rules of tokens beside transformers' processors of logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinLengthLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from optc.runtime.text_to_text.conventions import TextConventions
from optc.runtime.text_to_text.rules import Rules

START, END, VOCABULARY = 0, 1, 9


@pytest.mark.parametrize("run", [1, 2, 3])
def test_the_likeliest_token_is_that_of_transformers(run: int) -> None:
    known = TextConventions(
        start=START,
        ends=(END,),
        suppressed=(3,),
        least_length=4,
        no_repeat=run,
        repetition_penalty=1.7,
    )
    processors = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(1.7),
            NoRepeatNGramLogitsProcessor(run),
            MinLengthLogitsProcessor(4, END),
            SuppressTokensLogitsProcessor([3]),
        ]
    )
    rules, draws = Rules(known, START, None, 99), np.random.default_rng(run)
    differ = 0
    for _ in range(200):
        said = draws.integers(2, VOCABULARY, draws.integers(0, 6)).tolist()
        logits = draws.standard_normal(VOCABULARY).astype(np.float32)
        before = logits.copy()
        ids = torch.tensor([[START, *said]])
        wanted = int(processors(ids, torch.from_numpy(logits[None].copy())).argmax())
        assert rules.next_token(logits, said) == wanted
        assert (logits == before).all()
        differ += wanted != logits.argmax()
    assert differ > 20


def test_forced_tokens() -> None:
    known = TextConventions(start=START, ends=(END,), last=END, suppressed_first=(5,))
    logits = np.zeros(VOCABULARY, np.float32)
    logits[5], logits[6] = 2, 1
    assert Rules(known, START, 7, 4).next_token(logits, []) == 7
    assert Rules(known, START, 7, 4).next_token(logits, [7]) == 6
    assert Rules(known, START, None, 4).next_token(logits, []) == 6
    assert Rules(known, START, None, 4).next_token(logits, [2]) == 5
    assert Rules(known, START, None, 4).next_token(logits, [2, 2, 2]) == END
    assert Rules(known, START, None, 4).ended([2, END])
    assert not Rules(known, START, None, 4).ended([])


def test_models_whose_start_is_a_language() -> None:
    languages = {"de_DE": 4, "en_XX": 5}
    assert TextConventions(start=5, languages=languages).prompt("de_DE") == (4, None)
    assert TextConventions(start=0, first=5, languages=languages).prompt("de_DE") == (0, 4)
    assert TextConventions(start=0, first=5, languages=languages).prompt(None) == (0, 5)
