"""What beam search is asked for, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optc.errors import RequestError
from optc.runtime.engine import Engine
from optc.runtime.params import SamplingParams
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.beams.naive_beams import search_naively
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import ToyExecutable, naive_logits, toy_spec


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"n": 2}, "n"),
        ({"stop": "x"}, "stop"),
        ({"logprobs": 0}, "logprobs"),
        ({"temperature": 0.5, "top_k": 3}, "temperature, filters"),
        ({"repetition_penalty": 1.2}, "penalties"),
        ({"regex": "a"}, "structured output"),
    ],
)
def test_what_does_not_go_together_is_named(options: dict[str, Any], names: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(beam_width=2, **options)
    assert str(caught.value) == (
        f"sampling parameters: beam_width does not go together with {names} "
        "(beam search ranks whole outputs by the model's own probabilities)"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"beam_width": 0},
        {"beam_width": 1.5},
        {"length_penalty": float("inf")},
        {"length_penalty": 50.5},  # a power of a length beyond it may be no float
        {"length_penalty": -51},
        {"early_stopping": "often"},
        {"early_stopping": 1},
        {"early_stopping": np.array([1, 2])},
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"{next(iter(options))}=.* is not allowed"):
        SamplingParams(**options)


@pytest.mark.parametrize("length_penalty", [-50, 50])
def test_the_largest_length_penalties_are_served(length_penalty: float) -> None:
    params = SamplingParams(beam_width=2, length_penalty=length_penalty, max_tokens=60)
    with Engine(lambda: ToyExecutable(toy_spec())) as engine:
        assert engine.submit([1], params).result().output_tokens == 120


def test_more_beams_than_sequences_are_refused() -> None:
    engine = Engine(lambda: ToyExecutable(toy_spec(max_sequences=3)))
    with engine, pytest.raises(RequestError) as caught:
        engine.submit([1], SamplingParams(beam_width=4))
    assert str(caught.value) == (
        "beam_width: a beam width of 4 (at most 3, the sequences of one step)"
    )


def test_the_engine_returns_the_beams_best_first() -> None:
    executable = ToyExecutable(toy_spec(vocab=259, max_context=128))
    tokenizer = Tokenizer(byte_level(bos=True))
    params = SamplingParams(beam_width=3, max_tokens=7)
    with Engine(lambda: executable, tokenizer=tokenizer, eos_token_ids=[1]) as engine:
        output = engine.generate(["ab", "c"], params)[0]
        handle = engine.submit("ab", params)
        deltas = list(handle)
    plain = search_naively(
        lambda path: naive_logits(executable.model, path),
        list(output.prompt_token_ids),
        width=3,
        max_tokens=7,
        ends=frozenset({1}),
    )
    assert [list(c.token_ids) for c in output.completions] == [tokens for tokens, _ in plain]
    scores = [c.cumulative_logprob for c in output.completions]
    assert scores == pytest.approx([score for _, score in plain])
    assert [delta.text for delta in deltas] == [c.text for c in output.completions]
    assert [len(c.metrics.token_times_s) for c in output.completions] == [
        len(c.token_ids) for c in output.completions
    ]
