"""Grammars of calls whose name and arguments stand between marks: DeepSeek's and Harmony's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from optc.runtime.parsing.deepseek import CALL, END_OF_CALL, END_OF_FENCE, FENCE, KIND, SEPARATOR
from optc.runtime.parsing.formats import HARMONY_THOUGHTS, CallFormat
from optc.runtime.parsing.harmony import MESSAGE
from optc.runtime.structured.numbers import exact_numbers

#: As models write JSON.
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_CHANNEL, _CONSTRAIN, _START = "<|channel|>", "<|constrain|>", "<|start|>"

#: The term of a grammar for a text: its token, if it is one.
Mark = Callable[[str], str]
Tools = Mapping[str, Mapping[str, Any]]


def deepseek_calls(calls: CallFormat, tools: Tools, mark: Mark, most: int) -> str:
    """Calls between DeepSeek's marks.

    Args:
        calls: The format.
        tools: Schemas of the arguments by the names of the functions.
        mark: Of a text.
        most: Calls of a message.
    """
    each = []
    for name, schema in tools.items():
        arguments = json_term(with_type(schema))
        if calls.fenced:
            fence = json.dumps(f"{name}\n{FENCE}\n"), json.dumps(f"\n{END_OF_FENCE}")
            head = f"{json.dumps(KIND)} {mark(SEPARATOR)} {fence[0]}"
            each.append(f"{head} {arguments} {fence[1]}")
        else:
            each.append(f"{json.dumps(name)} {mark(SEPARATOR)} {arguments}")
    one = f"{mark(CALL)} ({' | '.join(each)}) {mark(END_OF_CALL)}"
    between = f"{json.dumps(calls.separator)} " if calls.separator else ""
    more = f" ({between}{one}){{0,{most - 1}}}" if most > 1 else ""
    return f"{mark(calls.begins[0])} {one}{more} {mark(calls.ends[0])}"


def harmony_grammar(tools: Tools, mark: Mark) -> str:
    """A message of gpt-oss that calls one function, behind a thought or at once.

    Args:
        tools: Schemas of the arguments by the names of the functions.
        mark: Of a text.
    """
    each = []
    for name, schema in tools.items():
        to = json.dumps(f"commentary to=functions.{name} ")
        kind = f'{mark(_CONSTRAIN)} "json" {mark(MESSAGE)}'
        each.append(f"{to} {kind} {json_term(with_type(schema))}")
    end, channel = mark(HARMONY_THOUGHTS.end), mark(_CHANNEL)
    if end.startswith("<"):  # a token, which no other text holds
        thought = f"thought: /(?s:.*)/ {end}"
    else:
        thought = f"thought[suffix={end}]: /(?s:.*)/"
    begun = f'{channel} "analysis" {mark(MESSAGE)} thought {mark(_START)} "assistant"'
    return f"start: ({begun})? {channel} ({' | '.join(each)})\n{thought}"


def json_term(schema: Mapping[str, Any]) -> str:
    """JSON that fits a schema.

    Raises:
        RequestError: It has numbers that no grammar keeps.
    """
    exact = exact_numbers({"x-guidance": _LAYOUT, **schema}, "")
    return f"%json {json.dumps(exact)}"


def with_type(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of arguments, which are an object even where it says nothing."""
    return {"type": "object", **schema}
