"""From what callers give to submissions: copied once, checked, refused with one error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from optc.errors import RequestError, RequestTypeError
from optc.runtime.adapters.table import AdapterTable
from optc.runtime.params import SamplingParams
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.prompts import Chat
from optc.runtime.submitting import input_processor as input_processor_module
from optc.runtime.submitting.input_processor import InputProcessor
from optc.runtime.submitting.submission import Submission
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level

VOCAB, CONTEXT = 259, 32
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}</s>{% endfor %}{{ more }}"


def make(*, tokenizer: bool = True) -> InputProcessor:
    made = Tokenizer(byte_level(), chat_template=TEMPLATE, special_tokens={"bos_token": "<s>"})
    return InputProcessor(
        made if tokenizer else None,
        VOCAB,
        CONTEXT,
        4,
        (1,),
        AdapterTable(None),
        lambda handle: None,
    )


def submit(prompt: Any, *, parse_special: bool = False, **params: Any) -> Submission:
    return make().submission(
        GenerationRequest(prompt, SamplingParams(**params), parse_special=parse_special)
    )


class Lying(list[int]):
    """Says that it is shorter than it is, as a list may be that another thread extends."""

    def __len__(self) -> int:
        return 1


class Shrinking(list[int]):
    """Loses its items as they are read."""

    def __iter__(self) -> Iterator[int]:
        while self:
            yield super().pop()


class Broken:
    def __index__(self) -> int:
        raise ValueError("no number")


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ((1, 2), [1, 2]),
        (range(3), [0, 1, 2]),
        (np.array([1, 2], np.uint8), [1, 2]),
        (np.array([2**32 + 5 - 2**32], np.uint64), [5]),
        (np.array([3, 4], object), [3, 4]),
        (np.arange(10)[::3], [0, 3, 6, 9]),
        (Lying([4, 5]), [4, 5]),
        (Shrinking([1, 2, 3]), [3, 2, 1]),
        ([1] * (CONTEXT - 1), [1] * (CONTEXT - 1)),
    ],
)
def test_prompts_of_token_ids(prompt: Any, ids: list[int]) -> None:
    submission = submit(prompt)
    assert submission.prompt.tolist() == ids
    assert submission.prompt.dtype == np.int32
    assert submission.handle.prompt_token_ids == tuple(ids)


def test_an_array_that_changes_afterwards_changes_nothing() -> None:
    prompt = np.array([1, 2, 3], np.int32)
    submission = submit(prompt)
    prompt[:] = 99
    assert submission.prompt.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (Lying([1] * 2000), "the prompt has at least 32 tokens; the context holds 32, prompt and"),
        ([1] * 2000, "the prompt has 2000 tokens; the context holds 32"),
        (range(10**12), "the prompt has 1000000000000 tokens"),
        (np.ones(40, np.int64), "the prompt has 40 tokens"),
        ([1] * CONTEXT, "the prompt has 32 tokens"),
        ([], "the prompt is empty (give some tokens)"),
        (np.array([], np.int64), "the prompt is empty"),
        ("", "the prompt is empty (give some text)"),
        (Lying(), "the prompt is empty"),
        ([-1], "unknown token ids [-1] (they go from 0 to 258)"),
        ([VOCAB], "unknown token ids [259]"),
        (np.array([2**63 + 5], np.uint64), "unknown token ids [9223372036854775813]"),
    ],
)
def test_prompts_that_do_not_fit(prompt: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        submit(prompt)
    assert str(caught.value).startswith(f"prompt: {message}")
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        3,
        {1: 2},
        {1, 2},
        b"ab",
        bytearray(b"ab"),
        memoryview(b"ab"),
        [1.5],
        ["1"],
        [None],
        [1, 2**63],
        [Broken()],
        iter([1]),
        np.array(3),
        np.array([[1]]),
        np.array([1.0]),
        np.array([True]),
        np.array(["a"]),
        np.zeros(2, "M8[s]"),
        np.ma.array([1, 2], mask=[False, True]),
        np.ma.array([1, 2]),
    ],
)
def test_what_is_no_prompt_is_an_error_of_its_type(prompt: Any) -> None:
    with pytest.raises(RequestTypeError, match="prompt: a prompt is a text or a list of token ids"):
        submit(prompt)
    with pytest.raises(TypeError):
        submit(prompt)


def test_texts_of_control_tokens_are_text_unless_asked_for() -> None:
    assert not set(range(3)) & set(submit("a<s></s>").prompt.tolist())
    assert submit("<s></s>", parse_special=True).prompt.tolist() == [0, 1]


def test_conversations() -> None:
    chat = Chat([{"content": "a</s>"}], {"more": "<s>"})
    ids = submit(chat).prompt.tolist()
    assert [i for i in ids if i < 3] == [0, 1], "of the template only"
    assert submit(chat, parse_special=True).prompt.tolist()[-2:] == [1, 0]
    with pytest.raises(RequestError, match="the prompt has 45 tokens; the context holds 32"):
        submit(Chat([{"content": "x" * 43}]))


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        (Chat(None), "messages: None is no conversation"),  # type: ignore[arg-type]
        (Chat([{"content": 1j}]), "messages: 1j is not allowed"),
        (Chat([], 3), "variables: variables of a template are a mapping, not 3"),  # type: ignore[arg-type]
        (Chat([], {1: 2}), "variables: variables of a template are a mapping, not {1: 2}"),  # type: ignore[dict-item]
        (Chat([], {"more": {1j}}), "more: {1j} is not allowed"),
    ],
)
def test_what_is_no_conversation(chat: Chat, message: str) -> None:
    with pytest.raises(RequestTypeError) as caught:
        submit(chat)
    assert str(caught.value).startswith(message)


def test_what_cannot_fit_is_refused_before_it_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_processor_module, "SHORT_TEXT", 1000)
    monkeypatch.setattr(Tokenizer, "longest_token", 40)
    for prompt in ("x" * 1281, Chat([{"content": "x" * 1274}])):
        with pytest.raises(RequestError, match="1281 characters; the context holds 32 tokens,"):
            submit(prompt)
    with pytest.raises(RequestError, match="has 1280 tokens"):
        submit("x" * 1280)


@pytest.mark.parametrize("prompt", ["text", Chat([{"content": "a"}])])
def test_what_needs_a_tokenizer(prompt: Any) -> None:
    with pytest.raises(RequestError, match="prompt: there is no tokenizer"):
        make(tokenizer=False).submission(GenerationRequest(prompt, SamplingParams()))


def test_stop_strings_need_a_tokenizer() -> None:
    ids_only = make(tokenizer=False)
    assert ids_only.submission(GenerationRequest([1], SamplingParams())).streams == ()
    with pytest.raises(RequestError, match="stop strings need a tokenizer"):
        ids_only.submission(GenerationRequest([1], SamplingParams(stop="a")))
    assert len(submit([1], stop="a").streams) == 1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"beam_width": 5}, "beam_width: a beam width of 5 (at most 4, the sequences of one step)"),
        ({"stop_token_ids": [0, VOCAB]}, "stop_token_ids: unknown token ids [259]"),
        ({"logit_bias": {-1: 2}}, "logit_bias: unknown token ids [-1]"),
    ],
)
def test_parameters_that_the_engine_does_not_take(params: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        submit([1], **params)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("params", [{}, None, 0, [SamplingParams()]])
def test_parameters_of_another_type(params: Any) -> None:
    with pytest.raises(RequestTypeError, match="params: sampling parameters are an"):
        make().submission(GenerationRequest([1], params))


def test_each_completion_has_its_own_text_and_the_request_one_seed() -> None:
    submission = submit("ab", n=3, seed=5)
    assert (len(submission.streams), submission.seed) == (3, 5)
    assert len(set(map(id, submission.streams))) == 3
    assert submit("ab").seed != submit("ab").seed
    late = make().submission(GenerationRequest([1], SamplingParams(), deadline_s=2.0))
    assert late.ends_s == late.arrived_s + 2.0
    assert submit([1]).ends_s is None


@pytest.mark.parametrize(("skip", "text"), [(True, "ab"), (False, "a<pad>b")])
def test_special_tokens_show_where_they_are_wanted(skip: bool, text: str) -> None:
    made = Tokenizer(byte_level())
    (stream,) = submit("x", skip_special_tokens=skip).streams
    shown = [stream.add(token) for token in (*made.encode("a"), 2, *made.encode("b"))]
    assert "".join(shown) + stream.finish() == text


def test_a_prompt_is_scored_where_that_is_wanted() -> None:
    assert submit([1, 2, 3]).scored(VOCAB) is None
    scored = submit([1, 2, 3], prompt_logprobs=0).scored(VOCAB)
    assert scored is not None


@pytest.mark.parametrize(("own", "tells"), [(CONTEXT, False), (4 * CONTEXT, True)])
def test_a_context_that_the_memory_cuts_is_said(own: int, tells: bool) -> None:
    intake = InputProcessor(
        None, VOCAB, CONTEXT, 4, (1,), AdapterTable(None), lambda handle: None, None, own
    )
    with pytest.raises(RequestError, match="33 tokens; the context holds 32") as caught:
        intake.submission(GenerationRequest([5] * 33, SamplingParams()))
    assert ("more kv_memory" in caught.value.hint) == tells
    assert ("smaller token_budget" in caught.value.hint) == tells
    assert (f"own limit is {own}" in caught.value.hint) == tells
