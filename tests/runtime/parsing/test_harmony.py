"""Channels of gpt-oss, however their text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.parsing.harmony import HarmonyReader
from tests.runtime.parsing.test_message_reader import Message, joined

THINK = "<|channel|>analysis<|message|>hm, so<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x": 1}'


def read(parts: list[str], most: int | None = None, *, cut: bool = False) -> Message:
    reader = HarmonyReader(most)
    pieces = [piece for part in parts for piece in reader.feed(part)]
    return joined(pieces + reader.finish(cut=cut))


CALLED = [("f", '{"x": 1}')]


@pytest.mark.parametrize(
    ("text", "said", "thought", "calls"),
    [
        (f"{THINK}<|channel|>final<|message|>hello <b>", "hello <b>", "hm, so", []),
        ("<|channel|>final<|message|>hello", "hello", "", []),
        ("<|channel|>final<|message|>hello<|return|>", "hello", "", []),
        (f"{THINK}{CALL}", "", "hm, so", CALLED),
        (f"{THINK}{CALL}<|call|>", "", "hm, so", CALLED),
        (CALL.replace("<|constrain|>json", "json"), "", "", CALLED),
        (' to=functions.f<|channel|>commentary json<|message|>{"x": 1}', "", "", CALLED),
        (
            f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{CALL}",
            "I look.",
            "",
            CALLED,
        ),
        (f"{CALL}<|call|><|start|>assistant{CALL}", "", "", CALLED * 2),
        ("<|channel|>commentary to=python<|message|>1 + 1<|call|>", "", "1 + 1", []),
        ("<|channel|>analysis<|message|>hm", "", "hm", []),
        ("<|channel|>analysis<|mess", "", "", []),
        ('{"a": 1} <|end|>', '{"a": 1} ', "", []),
        ("<b>hello", "<b>hello", "", []),
        ("", "", "", []),
    ],
)
def test_channels(text: str, said: str, thought: str, calls: list[tuple[str, str]]) -> None:
    assert read([text]) == (said, thought, calls)
    assert read(list(text)) == (said, thought, calls)


def test_a_limit_within_a_mark_shows_no_half_of_it() -> None:
    text = f"{THINK}<|channel|>final<|message|>hello<|end|><|start|>assistant{CALL}<|call|>"
    whole = read([text])
    for place in range(len(text)):
        found = read(list(text[:place]), cut=True)
        assert whole.said.startswith(found.said)
        assert whole.thought.startswith(found.thought)
        assert all('{"x": 1}'.startswith(arguments) for _, arguments in found.calls)


def test_calls_beyond_the_first_ones_do_not_count() -> None:
    assert read([f"{CALL}<|call|><|start|>assistant{CALL}"], 1).calls == CALLED


FRAGMENTS = [
    *(
        "<|channel|>",
        "<|message|>",
        "<|end|>",
        "<|start|>",
        "<|call|>",
        "<|constrain|>",
        "analysis",
    ),
    *("final", "commentary", " to=functions.f", "assistant", '{"x": 1}', " ", "ab", "<", "|>", "é"),
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join), st.data())
def test_however_a_text_is_cut(text: str, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    ends = [*places, len(text)]
    parts = [text[begin:end] for begin, end in zip([0, *places], ends, strict=True)]
    assert read(parts) == read([text]) == read(list(text))


@given(st.text(max_size=30))
def test_a_text_without_channels_is_said(text: str) -> None:
    if "<|" not in text and text.strip():
        assert read([text]) == (text, "", [])
