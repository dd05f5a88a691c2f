"""Drawn tokens become text and ends."""

from __future__ import annotations

from typing import Any

import pytest

from optc.runtime.loop.output_processor import advance
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import Drawn, NoToken, Sampled
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from tests.runtime.support.requests import make_request

EOS = frozenset({25})


def drawn(*tokens: int) -> list[Drawn]:
    return [Sampled(token, None) for token in tokens]


class Grammar:
    """Stands for a constraint: it has consumed all that was drawn."""

    def __init__(self, *, ended: bool, error: str = "") -> None:
        self.ended, self.error = ended, error


def test_tokens_are_appended_with_their_text_and_times() -> None:
    request = make_request()
    delta = advance(request, drawn(0, 1), EOS, 2.5)
    assert (delta.text, delta.token_ids, delta.finish_reason) == ("ab", (0, 1), None)
    assert request.output.tolist() == [0, 1]
    assert request.metrics.token_times_s == [2.5, 2.5]
    assert request.finish_reason is None, "that is the caller's to set"


@pytest.mark.parametrize(
    ("params", "tokens", "kept", "text", "reason"),
    [
        ({}, (0, 25, 1), (0, 25), "a", "stop"),
        ({"ignore_eos": True}, (0, 25, 1), (0, 25, 1), "azb", None),
        ({"stop_token_ids": [1]}, (0, 1, 2), (0, 1), "a", "stop"),
        ({"stop_token_ids": [25], "ignore_eos": True}, (25,), (25,), "", "stop"),
        ({"stop": "bc"}, (0, 1, 2, 3), (0, 1, 2), "a", "stop"),
        ({"stop": "bd"}, (0, 1), (0, 1), "a", None),
        ({"stop": "bd"}, (0, 1, 25), (0, 1, 25), "ab", "stop"),
    ],
)
def test_what_ends_a_text(
    params: dict[str, Any], tokens: tuple[int, ...], kept: tuple[int, ...], text: str, reason: Any
) -> None:
    request = make_request([1], SamplingParams(**params))
    delta = advance(request, drawn(*tokens), EOS, 0.0)
    assert (delta.token_ids, delta.text, delta.finish_reason) == (kept, text, reason)
    assert tuple(request.output.tolist()) == kept


def test_the_length_ends_it_with_what_was_held_back() -> None:
    request = make_request([1], SamplingParams(stop="bz"), max_length=3)
    assert advance(request, drawn(0), EOS, 0.0).finish_reason is None
    delta = advance(request, drawn(1, 2), EOS, 0.0)
    assert (delta.text, delta.token_ids, delta.finish_reason) == ("b", (1,), "length")


def test_a_stop_string_in_the_last_token_is_a_stop() -> None:
    request = make_request([1], SamplingParams(stop="b"), max_length=3)
    assert advance(request, drawn(0, 1), EOS, 0.0).finish_reason == "stop"


def test_without_a_tokenizer_ends_are_the_same() -> None:
    request = make_request([1], max_length=3, text=False)
    delta = advance(request, drawn(0, 1), EOS, 0.0)
    assert (delta.text, delta.finish_reason) == ("", "length")
    other = make_request([1], text=False)
    assert advance(other, drawn(25), EOS, 0.0).finish_reason == "stop"


def test_only_the_last_token_completes_a_grammar() -> None:
    request = make_request([1], SamplingParams(stop="bx"), constraint=Grammar(ended=True))
    delta = advance(request, drawn(0, 1), EOS, 0.0)
    assert (delta.text, delta.token_ids, delta.finish_reason) == ("ab", (0, 1), "stop")
    going = make_request([1], constraint=Grammar(ended=False))
    assert advance(going, drawn(0), EOS, 0.0).finish_reason is None


def test_log_probabilities_are_those_of_the_tokens_that_count() -> None:
    request = make_request([1])
    likely = [TokenLogprobs(token, -float(token), ()) for token in (0, 25, 1)]
    delta = advance(request, [Sampled(one.token_id, one) for one in likely], EOS, 0.0)
    assert delta.logprobs == tuple(likely[:2])
    assert request.logprobs == likely[:2]


@pytest.mark.parametrize(
    ("why", "grammar", "message"),
    [
        (NoToken.NAN, None, "the weights or the engine are broken for this input"),
        (NoToken.NOTHING_ALLOWED, None, "or logit_bias forbids it"),
        (NoToken.NOTHING_ALLOWED, Grammar(ended=False, error="too deep"), "simplify the grammar"),
    ],
)
def test_no_token_is_an_error_of_the_request(why: NoToken, grammar: Any, message: str) -> None:
    request = make_request([1], SamplingParams(stop="bz"), constraint=grammar)
    delta = advance(request, [*drawn(0, 1), why, *drawn(2)], EOS, 0.0)
    assert (delta.text, delta.token_ids, delta.finish_reason) == ("ab", (0, 1), "error")
    assert request.error is not None
    assert request.error.where == "output token 2"
    assert message in str(request.error)
    assert ("too deep" in str(request.error)) == (grammar is not None)
