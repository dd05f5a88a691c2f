"""`Engine.score`, `Engine.score_all` and ``prompt_logprobs`` as a caller sees them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from optc.errors import RequestError, RequestTypeError
from optc.runtime.engine import Engine
from optc.runtime.params import SamplingParams
from optc.runtime.requests.prompts import Chat
from optc.runtime.scoring.prompt_logprobs import PromptTokenLogprobs
from optc.runtime.scoring.score import Score, encode_pair
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import ToyExecutable, generate_naively, naive_logits, toy_spec

TEMPLATE = "{% for one in messages %}{{ one.content }}|{% endfor %}"


def text_engine(*, bos: bool = True, **spec: Any) -> tuple[Engine, ToyExecutable]:
    executable = ToyExecutable(toy_spec((0,), vocab=259, **{"max_context": 128, **spec}))
    tokenizer = Tokenizer(byte_level(bos=bos), chat_template=TEMPLATE)
    return Engine(lambda: executable, tokenizer=tokenizer, eos_token_ids=[1]), executable


def expected(executable: ToyExecutable, before: list[int], tokens: list[int]) -> list[float]:
    found = []
    for count, token in enumerate(tokens):
        logits = naive_logits(executable.model, before + tokens[:count]).astype(np.float64)
        found.append(
            float(logits[token] - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
        )
    return found


def test_a_score_is_the_sum_of_what_the_model_says_of_each_token() -> None:
    engine, executable = text_engine()
    with engine:
        assert engine.tokenizer is not None
        before, after = engine.tokenizer.encode("one two"), [*b" three"]
        ids = engine.tokenizer.encode("one two three")
        score = engine.score("one two", " three")
        assert score.token_ids == tuple(ids[len(before) :])
        assert len(score.token_ids) == len(after)
        each = expected(executable, before, list(score.token_ids))
        assert score.token_logprobs == pytest.approx(each, abs=1e-9)
        assert score.logprob == pytest.approx(sum(each), abs=1e-9)
        same = [
            engine.score("one two ", "three"),
            engine.score(before, " three"),
            engine.score(before, score.token_ids),
            engine.score("one two", score.token_ids),
            engine.score(np.array(before), np.array(score.token_ids)),
        ]
        assert same == [score] * 5, "blanks at the context's end are the continuation's"


def test_a_continuation_is_greedy_where_decoding_would_write_it() -> None:
    executable = ToyExecutable(toy_spec((0, 6)))
    with Engine(lambda: executable) as engine:
        context = [5, 6, 7]
        greedy = generate_naively(executable.model, context, 5)
        other = [*greedy[:2], (greedy[2] + 1) % 40]
        scores = engine.score_all([(context, greedy), (context, other), (context, other[:2])])
        assert [score.is_greedy for score in scores] == [True, False, True]
        assert scores[2].logprob == sum(scores[0].token_logprobs[:2])


def test_pairs_share_their_context_and_keep_their_order() -> None:
    engine, executable = text_engine(max_rows=64, max_sequences=16)
    context = "a context that all of them have in common: "
    choices = [f"{word} and so on" for word in ("first", "second", "third", "fourth")]
    with engine:
        scores = engine.score_all([(context, choice) for choice in choices])
        rows = sum(len(batch.tokens) for batch in executable.batches)
        assert scores == [engine.score(context, choice) for choice in choices]
        again = sum(len(batch.tokens) for batch in executable.batches) - rows
    whole = sum(len(context) + len(choice) for choice in choices)
    assert again < whole / 2, "from the cache, up to what is scored"


def test_a_conversation_is_a_context() -> None:
    engine, _ = text_engine()
    with engine:
        chat = Chat([{"role": "user", "content": "hi"}])
        assert engine.score(chat, "yes") == engine.score([*_bytes("hi|")], "yes")
        assert len(engine.score("", "yes").token_ids) == 3, "behind the token that texts begin with"


def _bytes(text: str) -> list[int]:
    ids: list[int] = Tokenizer(byte_level(bos=False)).encode(text)
    return ids


@pytest.mark.parametrize(
    ("context", "continuation", "message"),
    [
        ("", "yes", "context: the context has no token"),
        ("  ", "yes", "context: the context has no token"),
        ([], "yes", "prompt: the prompt is empty"),
        ("some", "", "continuation: the continuation has no token"),
        ("some", [], "continuation: the continuation has no token"),
        ([3, 4], [300], "prompt: unknown token ids [300]"),
        ([3, 400], [3], "prompt: unknown token ids [400]"),
        ("x" * 100, "y" * 30, "prompt: the prompt has 130 tokens; the context holds 128"),
        ([3] * 100, [4] * 200, "prompt: the prompt has"),
    ],
)
def test_what_cannot_be_scored_is_one_error(context: Any, continuation: Any, message: str) -> None:
    engine, _ = text_engine(bos=False)
    with engine:
        with pytest.raises(RequestError) as error:
            engine.score(context, continuation)
        assert str(error.value).startswith(message)
        with pytest.raises(RequestError, match=r"pairs\[1\]|prompts\[1\]"):
            engine.score_all([("a", "b"), (context, continuation)])
        assert engine.metrics().steps == 0, "nothing was begun"


@pytest.mark.parametrize(
    "pairs", [[("a", 3)], [(3, "b")], ["ab"], [("a", b"b")], [("a", "b", "c")], [("a", [1.5])]]
)
def test_pairs_of_wrong_types_are_refused(pairs: Any) -> None:
    engine, _ = text_engine()
    with engine, pytest.raises(RequestTypeError):
        engine.score_all(pairs)


def test_the_last_token_of_a_whole_context_is_scored() -> None:
    engine, executable = text_engine(max_context=32)
    with engine:
        score = engine.score([3] * 31, [7])
        assert score.token_logprobs == pytest.approx(expected(executable, [3] * 31, [7]), abs=1e-9)
        with pytest.raises(RequestError, match="the prompt has 33 tokens"):
            engine.score([3] * 31, [7, 8])


def test_prompts_report_each_token_but_the_first() -> None:
    engine, _ = text_engine()
    params = SamplingParams(temperature=0, max_tokens=3, logprobs=1, prompt_logprobs=2)
    with engine:
        (output,) = engine.generate(["abc"], params)
        found = output.prompt_logprobs
        assert found is not None
        assert len(found) == output.prompt_tokens
        assert found[0] is None
        for token, entry in zip(output.prompt_token_ids[1:], found[1:], strict=True):
            assert isinstance(entry, PromptTokenLogprobs)
            assert entry.token_id == token
            assert len(entry.top) == 2
            assert (entry.rank == 1) == (entry.top[0][0] == token)
        plain = engine.generate(["abc"], SamplingParams(temperature=0, max_tokens=3, logprobs=1))[0]
        assert plain.prompt_logprobs is None
        assert output.completions[0].logprobs == plain.completions[0].logprobs
        assert output.token_ids == plain.token_ids
        both = engine.generate(["abc"], params.changed(n=2, temperature=0.5, seed=3))[0]
        assert both.prompt_logprobs == found
        assert json.loads(json.dumps(output.to_json()))["prompt_logprobs"] == found.to_json()
        second = found[1]
        assert isinstance(second, PromptTokenLogprobs)
        assert found.to_json()[:2] == [
            None,
            {
                "token_id": second.token_id,
                "logprob": second.logprob,
                "top": [{"token_id": token, "logprob": value} for token, value in second.top],
                "rank": second.rank,
            },
        ]
        assert plain.to_json()["prompt_logprobs"] is None
        later = engine.submit("abc", params, scored_from=2).result().prompt_logprobs
        assert later is not None
        assert (later[1], later[2:]) == (None, found[2:])


def test_a_prompt_that_was_cancelled_has_no_scores() -> None:
    engine, _ = text_engine(max_context=4096, max_rows=2)
    with engine:
        handle = engine.submit([3] * 4000, SamplingParams(max_tokens=0, prompt_logprobs=0))
        handle.cancel()
        output = handle.result()
        assert output.finish_reason == "cancelled"
        assert output.prompt_logprobs is None
        with pytest.raises(RequestError, match="not scored: ended by cancelled"):
            Score.of(output)


def test_a_deadline_that_ends_a_score_is_said() -> None:
    engine, _ = text_engine(max_context=4096, max_rows=2)
    with engine, pytest.raises(RequestError, match="ended by deadline"):
        engine.score([3] * 4000, [4], deadline_s=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0 is not allowed"),
        ({"prompt_logprobs": -1}, "prompt_logprobs=-1 is not allowed"),
        ({"prompt_logprobs": 101}, "prompt_logprobs=101 is not allowed"),
        ({"prompt_logprobs": True}, "prompt_logprobs=True is not allowed"),
        ({"prompt_logprobs": 1, "beam_width": 2}, "beam_width does not go together with prompt_lo"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(
    params: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        SamplingParams(**params)


@pytest.mark.parametrize("first", [-1, 1.5, "2", True, None])
def test_the_first_scored_token_is_an_index(first: Any) -> None:
    engine, _ = text_engine()
    with engine, pytest.raises(RequestError, match="scored_from"):
        engine.submit("abc", SamplingParams(prompt_logprobs=0), scored_from=first)


def test_texts_are_cut_where_the_context_ends_alone() -> None:
    def words(text: str) -> list[int]:
        return [0, *map(len, text.split())]

    assert encode_pair("one three", "x four", words) == ([0, 3, 6, 4], 3)
    assert encode_pair("one three  ", "four", words) == ([0, 3, 5, 4], 3)
    assert encode_pair("", "four", words) == ([0, 4], 1)
