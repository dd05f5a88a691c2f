"""Contents, thoughts and calls of messages in each format, however their text is cut."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.parsing.formats import (
    DEEPSEEK,
    DEEPSEEK_31,
    GLM,
    HERMES,
    JSON,
    LLAMA,
    MISTRAL,
    PYTHON,
    TAGGED,
    XML,
    CallFormat,
    ThoughtFormat,
)
from optc.runtime.parsing.message_reader import MessageReader
from optc.runtime.parsing.pieces import CallArguments, CallBegun, Piece, Said, Thought

THINK = ThoughtFormat("<think>", "</think>")
TOOLS: dict[str, dict[str, Any]] = {
    "f": {"type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}}},
    "g": {},
}
A = '{"x": 1, "s": "a}\\"{]"}'
NO_CALLS: list[tuple[str, str]] = []


class Message(NamedTuple):
    said: str
    thought: str
    calls: list[tuple[str, str]]


def joined(pieces: list[Piece]) -> Message:
    said = thought = ""
    calls: list[tuple[str, str]] = []
    for piece in pieces:
        if isinstance(piece, Said):
            said += piece.text
        elif isinstance(piece, Thought):
            thought += piece.text
        elif isinstance(piece, CallBegun):
            assert piece.index == len(calls)
            calls.append((piece.name, ""))
        else:
            assert isinstance(piece, CallArguments)
            assert piece.index == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + piece.text)
    return Message(said, thought, calls)


def read(
    calls: CallFormat | None,
    parts: list[str],
    *,
    thinks: bool = False,
    in_thought: bool = False,
    cut: bool = False,
) -> Message:
    reader = MessageReader(calls, THINK if thinks else None, TOOLS, in_thought=in_thought)
    pieces = [piece for part in parts for piece in reader.feed(part)]
    return joined(pieces + reader.finish(cut=cut))


V3 = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
V31 = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
MANY, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"

CALLS: list[tuple[CallFormat, str, str, list[tuple[str, str]]]] = [
    (DEEPSEEK, f"Well.{MANY}{V3.format('f', A)}{END}", "Well.", [("f", A)]),
    (
        DEEPSEEK,
        f"{MANY}{V3.format('f', A)}\n{V3.format('g', '{}')}{END}",
        "",
        [("f", A), ("g", "{}")],
    ),
    (DEEPSEEK, f"{MANY}{V31.format('f', A)}{END} so", " so", [("f", A)]),
    (
        DEEPSEEK_31,
        f"{MANY}{V31.format('f', A)}{V31.format('g', '{}')}{END}",
        "",
        [("f", A), ("g", "{}")],
    ),
    (DEEPSEEK_31, f"{MANY}{V31.format('f', '{')}", "", [("f", "{<｜tool▁call▁end｜>")]),
    (DEEPSEEK, f"{MANY}{V3.format('f', A)}".replace("```<", "``` \n<") + END, "", [("f", A)]),
    (DEEPSEEK_31, f"{MANY}no", f"{MANY}no", NO_CALLS),
    (DEEPSEEK_31, f"{MANY}<｜tool▁call▁begin｜>f", f"{MANY}<｜tool▁call▁begin｜>f", NO_CALLS),
    (DEEPSEEK_31, "<｜tool", "<｜tool", NO_CALLS),
    (
        GLM,
        "I look.\n<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>12</arg_value>\n"
        "<arg_key>s</arg_key>\n<arg_value>12</arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
        "I look.",
        [("f", '{"x": 12, "s": "12"}'), ("g", "{}")],
    ),
    (
        GLM,
        "<tool_call>g<arg_key>y</arg_key><arg_value>a < b\nc</arg_value>",
        "",
        [("g", '{"y": "a < b\\nc"}')],
    ),
    (GLM, "<tool_call>g<arg_key>y</arg_key> no", "no", [("g", "{}")]),
    (
        GLM,
        "<tool_call>g<arg_key>y</arg_key><arg_key>z</arg_key><arg_value>1</arg_value></tool_call>",
        "",
        [("g", '{"z": 1}')],
    ),
    (GLM, "<tool_call>no</tool_call>", "<tool_call>no</tool_call>", NO_CALLS),
    (GLM, f'<tool_call>{{"name": "f", "arguments": {A}}}</tool_call>', "", [("f", A)]),
    (PYTHON, "[f(x=1, s='a'), g()]", "", [("f", '{"x": 1, "s": "a"}'), ("g", "{}")]),
    (PYTHON, ' [ f( s = "),(" , x = -1 ) ]', "", [("f", '{"s": "),(", "x": -1}')]),
    (
        PYTHON,
        "[f(x=[1, {'a': (None, True)}], s=\"it's\")]",
        "",
        [("f", '{"x": [1, {"a": [null, true]}], "s": "it\'s"}')],
    ),
    (PYTHON, "[f(x=true, s=null)]", "", [("f", '{"x": true, "s": null}')]),
    (PYTHON, "[f(1, 'b', 3)]", "", [("f", '{"x": 1, "s": "b", "2": 3}')]),
    (PYTHON, "[f(x=__import__('os'))]", "", [("f", '{"x": "__import__(\'os\')"}')]),
    (PYTHON, "[f(s='a\\'b')] then", " then", [("f", '{"s": "a\'b"}')]),
    (PYTHON, "[f(x=1, s='a", "", [("f", '{"x": 1}')]),
    (PYTHON, "<|python_start|>[g()]<|python_end|>", "", [("g", "{}")]),
    (PYTHON, "So <|tool_call_start|>[g()]<|tool_call_end|>!", "So!", [("g", "{}")]),
    (PYTHON, f'<|python_start|>{{"name": "f", "parameters": {A}}}<|python_end|>', "", [("f", A)]),
    (PYTHON, "[f(x=1), no] so", "] so", [("f", '{"x": 1}')]),
    (PYTHON, "[1, 2]", "[1, 2]", NO_CALLS),
    (PYTHON, "[h(x=1)]", "[h(x=1)]", NO_CALLS),
    (PYTHON, "so: [g()]", "so: [g()]", NO_CALLS),
    (HERMES, "hello", "hello", NO_CALLS),
    (HERMES, " a <b \n", " a <b \n", NO_CALLS),
    (HERMES, f'<tool_call>\n{{"name": "f", "arguments": {A}}}\n</tool_call>', "", [("f", A)]),
    (HERMES, f'<tool_call>{{"name":"f","arguments":{A}}}</tool_call>', "", [("f", A)]),
    (HERMES, f'<tool_call>{{"arguments": {A}, "name": "f"}}</tool_call>', "", [("f", A)]),
    (HERMES, '<tool_call>{"name": "g"}</tool_call>', "", [("g", "{}")]),
    (HERMES, '<tool_call>{"id": [1, "}"], "name": "g", "x": null}</tool_call>', "", [("g", "{}")]),
    (
        HERMES,
        f'I look.\n<tool_call>\n{{"name": "f", "arguments": {A}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>\n',
        "I look.",
        [("f", A), ("g", "{}")],
    ),
    (HERMES, f'<tool_call>[{{"name": "f", "arguments": {A}}}]</tool_call>', "", [("f", A)]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {"x": [1, 2', "", [("f", '{"x": [1, 2')]),
    (HERMES, '<tool_call>{"name": "f", "arguments": {}} then', " then", [("f", "{}")]),
    (HERMES, '<tool_call>{"name": "f"', '<tool_call>{"name": "f"', NO_CALLS),
    (HERMES, " <tool_call>\n{1: 2}", " <tool_call>\n{1: 2}", NO_CALLS),
    (HERMES, "<tool_call>no</tool_call>", "<tool_call>no</tool_call>", NO_CALLS),
    (HERMES, "the tag <tool_call", "the tag <tool_call", NO_CALLS),
    (HERMES, '<tool_call>{"name": "ü\\n", "arguments": {}}', "", [("ü\n", "{}")]),
    (MISTRAL, f'[TOOL_CALLS][{{"name": "f", "arguments": {A}}}]', "", [("f", A)]),
    (
        MISTRAL,
        f'[TOOL_CALLS] [{{"name": "f", "arguments": {A}}}, {{"name": "g", "arguments": {{}}}}]',
        "",
        [("f", A), ("g", "{}")],
    ),
    (MISTRAL, f'[TOOL_CALLS][ {{"name": "f", "arguments": {A}}} , no]', "no]", [("f", A)]),
    (MISTRAL, f'[TOOL_CALLS][{{"name": "f", "arguments": {A}}} no]', "no]", [("f", A)]),
    (MISTRAL, '[TOOL_CALLS]["f"] so', '[TOOL_CALLS]["f"] so', NO_CALLS),
    (MISTRAL, "[TOOL_CALLS][]", "[TOOL_CALLS][]", NO_CALLS),
    (MISTRAL, f"[TOOL_CALLS]f[ARGS]{A}[TOOL_CALLS]g[ARGS]{{}}", "", [("f", A), ("g", "{}")]),
    (MISTRAL, f"[TOOL_CALLS]f[CALL_ID]abc12[ARGS]{A}", "", [("f", A)]),
    (MISTRAL, f"[TOOL_CALLS]f{A}", "", [("f", A)]),
    (MISTRAL, "see [1] and [TOOL", "see [1] and [TOOL", NO_CALLS),
    (TAGGED, f'<|tool_call|>[{{"name": "f", "arguments": {A}}}]<|/tool_call|>', "", [("f", A)]),
    (TAGGED, f'<|tool_call|>[{{"name": "f", "arguments": {A}}}]', "", [("f", A)]),
    (LLAMA, f'{{"name": "f", "parameters": {A}}}', "", [("f", A)]),
    (LLAMA, f'\n<|python_tag|>{{"name": "f", "parameters": {A}}}', "", [("f", A)]),
    (
        LLAMA,
        f'{{"name": "f", "parameters": {A}}}; {{"name": "g", "parameters": {{}}}}',
        "",
        [("f", A), ("g", "{}")],
    ),
    (LLAMA, f'{{"name": "f", "parameters": {A}}} and so', " and so", [("f", A)]),
    (LLAMA, f'{{"name": "f", "parameters": {A}}};no', "no", [("f", A)]),
    (LLAMA, f'<|python_tag|>{{"name": "f", "parameters": {A}}} and so', " and so", [("f", A)]),
    (LLAMA, '{"name": "Bob", "age": 7}', '{"name": "Bob", "age": 7}', NO_CALLS),
    (LLAMA, '{"a": {"b": [1]}} x', '{"a": {"b": [1]}} x', NO_CALLS),
    (LLAMA, 'so: {"name": "f"}', 'so: {"name": "f"}', NO_CALLS),
    (JSON, f'{{"name": "f", "arguments": {A}}}', "", [("f", A)]),
    (
        XML,
        "<tool_call>\n<function=f>\n<parameter=x>\n12\n</parameter>\n<parameter=s>\n12\n"
        "</parameter>\n</function>\n</tool_call>",
        "",
        [("f", '{"x": 12, "s": "12"}')],
    ),
    (XML, "<tool_call><function=g></function></tool_call> ", "", [("g", "{}")]),
    (
        XML,
        "<tool_call><function=g><parameter=y>a < b\nc</parameter></function>",
        "",
        [("g", '{"y": "a < b\\nc"}')],
    ),
    (XML, "<tool_call><function=g>oops", "oops", [("g", "{}")]),
]


@pytest.mark.parametrize(("calls", "text", "said", "called"), CALLS)
def test_formats(calls: CallFormat, text: str, said: str, called: list[tuple[str, str]]) -> None:
    assert read(calls, [text]) == (said, "", called)
    assert read(calls, list(text)) == (said, "", called)
    behind = said.lstrip() if text[:1].isspace() else said
    assert read(calls, ["<think>hm</think>", text], thinks=True) == (behind, "hm", called)


@pytest.mark.parametrize(
    ("text", "in_thought", "said", "thought"),
    [
        ("<think>\nhm, so\n\nyes\n</think>\n\nhello", False, "hello", "hm, so\n\nyes"),
        (" <think>hm</think>", False, "", "hm"),
        ("hm</think> hello ", True, "hello ", "hm"),
        ("<think></think>hello", False, "hello", ""),
        ("hello <think>", False, "hello <think>", ""),
        (" hello", False, " hello", ""),
        ("<think>hm </thin", False, "", "hm </thin"),
        ("hm", True, "", "hm"),
        ("<thin", False, "<thin", ""),
        ("", True, "", ""),
        (" ", False, " ", ""),
    ],
)
def test_thoughts(text: str, in_thought: bool, said: str, thought: str) -> None:
    for parts in ([text], list(text)):
        found = read(HERMES, parts, thinks=True, in_thought=in_thought)
        assert found == (said, thought, [])


MARKED = [
    (calls, text)
    for calls, text, said, called in CALLS
    if called and any(mark in text for mark in calls.begins)
]


@pytest.mark.parametrize(("calls", "text"), MARKED)
def test_a_limit_within_a_mark_shows_no_half_of_it(calls: CallFormat, text: str) -> None:
    text = f"<think>hm</think>Well: {text}"
    whole = read(calls, [text], thinks=True)
    for place in range(len(text)):
        for parts in ([text[:place]], list(text[:place])):
            found = read(calls, parts, thinks=True, cut=True)
            assert whole.said.startswith(found.said.rstrip()), (text[:place], found)
            assert whole.thought.startswith(found.thought)
            assert not any(mark in found.said for mark in (*calls.begins, *calls.ends))


def test_what_a_model_ended_itself_is_said_whole() -> None:
    for text in ("1 <", "see <tool_call>", "the tag </tool_call", "[TOOL"):
        assert read(HERMES, [text]).said == text
    assert read(HERMES, ["a < b and"], cut=True).said == "a < b and"


#: Of which messages of all formats are made, and much that is nearly one.
FRAGMENTS = [
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    *("<|python_tag|>", "<|tool_call|>", "<|/tool_call|>", "<function=", "<parameter=", "f", ">"),
    *("</parameter>", "</function>", '{"name": "f"', '"arguments": ', '"parameters": ', A, "{}"),
    *("{", "}", "[", "]", ",", ", ", ":", ";", '"', "\\", " ", "\n", "<", "ab", "é", "1", "null"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "function", "<｜tool▁sep｜>", "```json"),
    *("```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<arg_key>", "</arg_key>"),
    *("<arg_value>", "</arg_value>", "<|python_start|>", "[f(", "[g()]", "x=", "'", "(", ")"),
    *('{"name": "f", "arguments": {"x": 1}}', '{"name": "g", "parameters": {}}'),
]
FORMATS = [
    *(None, HERMES, XML, MISTRAL, TAGGED, LLAMA, JSON),
    *(DEEPSEEK, DEEPSEEK_31, GLM, PYTHON),
]


@given(
    st.sampled_from(FORMATS),
    st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_however_a_text_is_cut(
    calls: CallFormat | None, text: str, thinks: bool, in_thought: bool, data: st.DataObject
) -> None:
    how = {"thinks": thinks, "in_thought": thinks and in_thought}
    whole = read(calls, [text], **how)
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    ends = [*places, len(text)]
    parts = [text[begin:end] for begin, end in zip([0, *places], ends, strict=True)]
    assert read(calls, parts, **how) == whole
    assert read(calls, list(text), **how) == whole


@given(st.sampled_from(FORMATS), st.text(max_size=30))
def test_a_text_without_calls_is_said_as_it_is(calls: CallFormat | None, text: str) -> None:
    markers = (
        "[TOOL_CALLS]",
        "<|tool_call|>",
        "<tool_call>",
        "<|python_tag|>",
        "<｜",
        "[f(",
        "[g(",
    )
    if not any(marker in text for marker in markers):
        assert read(calls, [text]) == (text, "", [])


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
            max_leaves=8,
        ),
    )
)
def test_arguments_are_what_was_written(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    call = f'{{"name": "f", "arguments": {text}}}'
    for calls, before, behind in (
        (HERMES, "<tool_call>\n", "\n</tool_call>"),
        (MISTRAL, "[TOOL_CALLS][", "]"),
        (TAGGED, "<|tool_call|>[", "]<|/tool_call|>"),
        (JSON, "", ""),
    ):
        assert read(calls, [before + call + behind]).calls == [("f", text)]
