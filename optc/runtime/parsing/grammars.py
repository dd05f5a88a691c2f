"""Grammars of messages that are calls: their arguments are valid by construction.

In Lark's syntax as llguidance takes it (https://github.com/guidance-ai/llguidance, docs/syntax.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from optc.runtime.parsing.formats import CallFormat, ThoughtFormat
from optc.runtime.parsing.marked_grammars import (
    deepseek_calls,
    harmony_grammar,
    json_term,
    with_type,
)
from optc.runtime.structured.structure import Structure
from optc.runtime.text.control_tokens import added_texts
from optc.runtime.text.tokenizer import Tokenizer

#: How often a message calls at most.
_MOST = 16
#: What would end a regular expression in a grammar, and pairs that would not.
_UNSAFE = re.compile(r"\\.|/|\n", re.DOTALL)
_SAFE = {"/": "\\/", "\n": "\\n", "\\\n": "\\n"}


def grammar_of_calls(
    calls: CallFormat,
    tools: Mapping[str, Mapping[str, Any]],
    tokenizer: Tokenizer,
    *,
    parallel: bool,
    thoughts: ThoughtFormat | None = None,
) -> str:
    """A grammar of messages that call one of some functions, or several.

    Args:
        calls: How they are written.
        tools: Schemas of the arguments by the names of the functions.
        tokenizer: The model's: texts that it has tokens for are written by these.
        parallel: A message may call several times.
        thoughts: The prompt has begun a thought, in this format.
    """
    mark = _marks(tokenizer)
    if calls.style == "harmony":
        return harmony_grammar(tools, mark)
    return _behind(thoughts, _calls(calls, tools, mark, parallel), mark)


def grammar_of_answers(
    structure: Structure,
    calls: CallFormat | None,
    tools: Mapping[str, Mapping[str, Any]],
    tokenizer: Tokenizer,
    *,
    parallel: bool,
    thoughts: ThoughtFormat | None,
) -> str:
    """A grammar of messages whose text has a structure, or that call functions instead.

    Args:
        structure: Of the text.
        calls: How calls are written; None calls nothing.
        tools, tokenizer, parallel, thoughts: As of `grammar_of_calls`.
    """
    mark = _marks(tokenizer)
    body = "answer"
    if calls is not None:
        body = f"(answer | {_calls(calls, tools, mark, parallel)})"
    return f"{_behind(thoughts, body, mark)}\nanswer: {_term(structure)}"


def _behind(thoughts: ThoughtFormat | None, body: str, mark: Callable[[str], str]) -> str:
    """The start of a grammar: ``body``, behind the end of a thought if the prompt has begun one."""
    if thoughts is None:
        return f"start: {body}"
    end = mark(thoughts.end)
    if end.startswith("<"):  # a token, which no other text holds
        thought = f"thought: /(?s:.*)/ {end}"
    else:
        thought = f"thought[suffix={end}]: /(?s:.*)/"
    return f"start: thought SPACE {body}\n{thought}\nSPACE: /\\s{{0,4}}/"


def _term(structure: Structure) -> str:
    """A structure as the right side of a rule."""
    if structure.kind == "json_schema":
        return json_term(json.loads(structure.text))
    if structure.kind == "regex":
        return f"/{_UNSAFE.sub(lambda found: _SAFE.get(found[0], found[0]), structure.text)}/"
    if structure.kind == "choice":
        return " | ".join(json.dumps(text) for text in json.loads(structure.text))
    return f"%lark {{\n{structure.text}\n}}"


def grammar_of_strict_calls(
    calls: CallFormat,
    tools: Mapping[str, Mapping[str, Any]],
    tokenizer: Tokenizer,
    *,
    parallel: bool,
    thoughts: ThoughtFormat | None,
) -> str | None:
    """A grammar of messages that say what they like, and end with calls, if any, that are right: a
    call begins with a token of its own, which no other text holds. None where the format has no
    such token.

    Args:
        calls, tools, tokenizer, parallel: As of `grammar_of_calls`.
        thoughts: Format of thoughts; None has none.
    """
    mark = _marks(tokenizer)
    if calls.bare or calls.style == "harmony" or not mark(calls.begins[0]).startswith("<"):
        return None
    ends = (thoughts.begin, thoughts.end) if thoughts is not None else ()
    others = [found for found in map(mark, ends) if found.startswith("<")]
    text = " | ".join(["TEXT", *others])
    body = _calls(calls, tools, mark, parallel)
    return f"start: ({text})* ({body})?\nTEXT: /(?s:.+)/"


def _marks(tokenizer: Tokenizer) -> Callable[[str], str]:
    """The term of a grammar for a text: its token, if it is one."""
    texts = added_texts(tokenizer.backend)

    def mark(text: str) -> str:
        token = tokenizer.backend.token_to_id(text) if text in texts else None
        return json.dumps(text) if token is None else f"<[{token}]>"

    return mark


def _calls(
    calls: CallFormat,
    tools: Mapping[str, Mapping[str, Any]],
    mark: Callable[[str], str],
    parallel: bool,
) -> str:
    """The calls of a message."""
    if calls.style == "deepseek":
        return deepseek_calls(calls, tools, mark, _MOST if parallel else 1)
    return _body(calls, _any_call(calls, tools), mark, parallel)


def _any_call(calls: CallFormat, tools: Mapping[str, Mapping[str, Any]]) -> str:
    return "(" + " | ".join(_call(calls, name, schema) for name, schema in tools.items()) + ")"


def _body(calls: CallFormat, call: str, mark: Callable[[str], str], parallel: bool) -> str:
    begin = mark(calls.begins[0]) if calls.begins else ""
    more = _MOST - 1 if parallel else 0
    if calls.listed:
        items = f'{call} (", " {call}){{0,{more}}}' if more else call
        ends = f" {mark(calls.ends[0])}" if calls.ends else ""
        return f'{begin} "[" {items} "]"{ends}'
    if calls.ends:
        line = json.dumps("\n")
        one = f"{begin} {line} {call} {line} {mark(calls.ends[0])}"
        return f"{one} ({line} {one}){{0,{more}}}" if more else one
    separator = json.dumps(calls.separator or ", ")
    return f"{call} ({separator} {call}){{0,{more}}}" if more and calls.separator else call


def _call(calls: CallFormat, name: str, schema: Mapping[str, Any]) -> str:
    """One function's call as JSON."""
    whole = {
        "type": "object",
        "properties": {"name": {"const": name}, calls.arguments: with_type(schema)},
        "required": ["name", calls.arguments],
        "additionalProperties": False,
    }
    return json_term(whole)
