"""A conversation's thoughts are apart from its answer, in whatever way that is taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import optc
from optc import Chat, SamplingParams
from optc.runtime.engine import Engine
from optc.runtime.outputs import Completion, Delta
from tests.serve.toys import TEMPLATE, saying

USER = {"role": "user", "content": "hi"}
GREEDY = SamplingParams(temperature=0, max_tokens=110)
THINKS = TEMPLATE + "{% if false %}<think></think>{% endif %}"
HARMONY = TEMPLATE + "{% if false %}<|channel|>{% endif %}"
HARMONY_TEXT = (
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>hello"
)
HARMONY_MARKS = ("<|channel|>", "<|message|>", "<|end|>", "<|start|>")
MARKS = ("<think>", "</think>")
BEGINS = TEMPLATE + "<think>{{ '</think>' if no }}"
#: A template, the marks that are tokens of their own, and what the model writes.
CASES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "marks as text": (THINKS, (), "<think>\nhm\n</think>\n\nhello"),
    "marks as tokens": (THINKS, MARKS, "<think>\nhm\n</think>\n\nhello"),
    "begun by the prompt": (BEGINS, (), "hm</think>hello"),
    "begun by it, as tokens": (BEGINS, MARKS, "hm</think>hello"),
    "brackets": (TEMPLATE + "{% if no %}[/THINK]{% endif %}", (), "[THINK]hm[/THINK]hello"),
    "channels": (HARMONY, (), HARMONY_TEXT),
    "channels as tokens": (HARMONY, HARMONY_MARKS, HARMONY_TEXT),
}


@pytest.fixture(params=CASES)
def engine(request: pytest.FixtureRequest) -> Engine:
    template, special, text = CASES[request.param]
    return saying(text, [USER], template, special)


def summed(deltas: list[Delta]) -> tuple[str, str]:
    whole = deltas[0].joined(*deltas[1:])
    return whole.reasoning, whole.text


def test_every_way_to_an_answer_has_it_apart(engine: Engine) -> None:
    wanted = ("hm", "hello")
    with engine:
        one = engine.chat([USER], GREEDY)
        assert (one.reasoning, one.text) == wanted
        (two,) = engine.generate([Chat([USER])], GREEDY)
        assert (two.reasoning, two.text, two.token_ids) == (*wanted, one.token_ids)
        handle = engine.submit(Chat([USER]), GREEDY)
        assert summed(list(handle)) == wanted
        assert (handle.result().reasoning, handle.result().text) == wanted
        assert two.completions[0].to_json()["reasoning"] == "hm"

        async def streamed() -> tuple[str, str]:
            return summed([delta async for delta in engine.stream(Chat([USER]), GREEDY)])

        async def submitted() -> Completion:
            return (await (await engine.asubmit(Chat([USER]), GREEDY))).completions[0]

        assert asyncio.run(streamed()) == wanted
        found = asyncio.run(submitted())
        assert (found.reasoning, found.text) == wanted


def test_all_of_a_text_that_is_asked_for(engine: Engine) -> None:
    with engine:
        whole = engine.chat([USER], GREEDY, whole_text=True)
        assert whole.reasoning == ""
        assert "hm" in whole.text
        assert whole.text.endswith("hello")
        again = engine.generate([list(whole.prompt_token_ids)], GREEDY)[0]
        assert (again.reasoning, again.text) == ("", whole.text), "a prompt of tokens says all"


@pytest.mark.parametrize("name", CASES)
def test_a_limit_leaves_no_half_of_a_mark(name: str) -> None:
    template, special, text = CASES[name]
    with saying(text, [USER], template, special) as engine:
        full = engine.chat([USER], GREEDY).token_ids
        for most in range(1, len(full)):
            found = engine.chat([USER], SamplingParams(temperature=0, max_tokens=most))
            assert "hm".startswith(found.reasoning)
            assert "hello".startswith(found.text)


def test_what_has_a_structure_is_no_thought() -> None:
    with saying("hm</think>hello", [USER], BEGINS) as engine:
        found = engine.chat([USER], SamplingParams(choice=["yes", "no"], seed=1, max_tokens=20))
    assert (found.reasoning, found.text in ("yes", "no")) == ("", True)


def test_a_model_that_does_not_think_says_all() -> None:
    text = "<think>hm</think> hello\n"
    with saying(text, [USER]) as engine:  # whose template shows no thoughts
        found = engine.chat([USER], GREEDY)
    assert (found.reasoning, found.text) == ("", text)


def test_the_next_turn_is_without_thoughts_where_the_template_drops_them() -> None:
    shows = (
        "{% if m.reasoning_content and keep %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    )
    template = (
        "{% for m in messages %}[{{ m.role }}]" + shows + "{{ m.content }}{% endfor %}[assistant]"
    )
    with saying("<think>hm</think>hello", [USER], template) as engine:
        answer = engine.chat([USER], GREEDY)
        said: dict[str, Any] = {"role": "assistant", "content": answer.text}
        tokenizer = engine.tokenizer
        assert tokenizer is not None
        for kept in (said, {**said, "reasoning": answer.reasoning}):
            prompt = tokenizer.render_chat([USER, kept, USER])
            assert "[assistant]hello[user]" in prompt
        prompt = tokenizer.render_chat([{**said, "reasoning": answer.reasoning}], keep=True)
        assert "<think>hm</think>hello" in prompt


def test_a_message_that_is_nothing_without_a_mark_is_answered() -> None:
    refuses = "{% if not messages[0].content %}{{ raise_exception('nothing') }}{% endif %}"
    asked = [{"role": "user", "content": "<think>"}]
    with saying("hello", asked, refuses + THINKS) as engine:
        found = engine.chat(asked, GREEDY)
    assert (found.reasoning, found.text) == ("", "hello")


def test_the_field_is_known_by_its_name() -> None:
    assert optc.GenerationRequest(Chat([USER]), whole_text=True).whole_text
