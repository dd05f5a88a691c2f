"""Tools of a chat: which the model may call, and which it must."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from optc.errors import RequestError
from optc.proof.conversations.tools_in_text import tools_in_text
from optc.runtime.params import SamplingParams
from optc.runtime.parsing.formats import (
    GLM,
    HERMES,
    JSON,
    PYTHON,
    XML,
    CallFormat,
    call_format,
    thought_format,
)
from optc.runtime.parsing.grammars import (
    grammar_of_answers,
    grammar_of_calls,
    grammar_of_strict_calls,
)
from optc.runtime.parsing.reading import Reading
from optc.runtime.text.tokenizer import Tokenizer
from optc.serve.api_errors import APIError
from optc.system.logs.logger import logger

_LOG = logger(__name__)


def check_tools(tools: Sequence[Mapping[str, Any]]) -> None:
    """Check that tools are told apart by their names.

    Raises:
        APIError: Two have one name, so that nobody could say which is called.
    """
    names: set[str] = set()
    for one in tools:
        name = one["function"]["name"]
        if name in names:
            raise APIError(400, f"two tools are named {name[:64]!r}: names are unique", "tools")
        names.add(name)


def take_allowed(fields: dict[str, Any]) -> bool:
    """Take the tools out of ``fields`` that may not be called, where ``tool_choice`` allows some:
    the model sees no others. True if it does; its mode becomes the choice.

    Raises:
        APIError: It allows what there is not.
    """
    choice = fields.get("tool_choice")
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return False
    tools = fields.get("tools") or ()
    allowed = {one["function"]["name"] for one in choice["allowed_tools"]["tools"]}
    for name in sorted(allowed - {one["function"]["name"] for one in tools}):
        raise _no_tool(name, [one["function"]["name"] for one in tools])
    fields["tools"] = [one for one in tools if one["function"]["name"] in allowed]
    if choice["allowed_tools"]["mode"] == "required":
        fields["tool_choice"] = "required"
    else:
        del fields["tool_choice"]
    return True


def reading_of(template: str, tools: Sequence[Mapping[str, Any]]) -> Reading:
    """The reading of messages of a model with this chat template, which may call ``tools``."""
    calls = call_format(template) if tools else None
    schemas = {one["function"]["name"]: one["function"].get("parameters") or {} for one in tools}
    return Reading(calls, thought_format(template), schemas)


def told_in_text(
    messages: Sequence[Mapping[str, Any]], variables: dict[str, Any], tokenizer: Tokenizer
) -> tuple[list[dict[str, Any]], Reading | None]:
    """Messages that tell in their text which tools there are, what was called and what that gave,
    where the chat template has no place for tools; and how what the model writes then is read.
    ``tools`` are taken out of ``variables``.
    """
    tools = variables.get("tools") or ()
    unread = bool(tokenizer.unread({"tools": "any"}))
    if not unread or not (tools or _hides_calls(messages, variables, tokenizer)):
        return [dict(one) for one in messages], None
    variables.pop("tools", None)
    texts = [{**one, "content": _text(one.get("content"))} for one in messages]
    reading = replace(reading_of(tokenizer.chat_template, tools), calls=HERMES if tools else None)
    return tools_in_text(texts, tools), reading


def _hides_calls(
    messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], tokenizer: Tokenizer
) -> bool:
    """True if messages call, or have results, and the template refuses them or leaves them out."""
    if not any(one.get("tool_calls") or one.get("role") == "tool" for one in messages):
        return False
    try:
        tokenizer.render_chat(messages, **variables)
    except RequestError:
        return True
    return False


def take_choice(fields: dict[str, Any], reading: Reading) -> tuple[Reading, bool]:
    """The reading of a request, and whether it must call; ``tool_choice`` is taken out.

    Raises:
        APIError: It must call what there is not.
    """
    choice = fields.pop("tool_choice", None)
    if choice is None:
        if reading.tools and reading.calls is None:
            _note_unknown()
        return reading, False
    if not reading.tools:
        raise APIError(400, "tool_choice needs tools", "tool_choice")
    if choice == "required":
        return _callable(reading), True
    name = choice["function"]["name"]
    if name not in reading.tools:
        raise _no_tool(name, reading.tools)
    only = {name: reading.tools[name]}
    return replace(_callable(reading), tools=only, most_calls=1), True


def _no_tool(name: str, tools: Iterable[str]) -> APIError:
    there = ", ".join(sorted(tools))[:200]
    return APIError(400, f"there is no tool {name[:64]!r}; there are: {there}", "tool_choice")


def grammar_of(reading: Reading, tokenizer: Tokenizer) -> str:
    """The grammar of messages that call.

    Args:
        reading: How they are read.
        tokenizer: The model's.
    """
    assert reading.calls is not None
    return grammar_of_calls(
        reading.calls,
        reading.tools,
        tokenizer,
        parallel=reading.most_calls != 1,
        thoughts=reading.begun,
    )


def answer_grammar(
    reading: Reading, tokenizer: Tokenizer, wanted: Mapping[str, Any], *, calls: bool
) -> str | None:
    """The grammar of messages whose text has a structure, where they may begin with a thought or
    call functions instead; None where the text is all that there is.

    Args:
        reading: How they are read.
        tokenizer: The model's.
        wanted: Sampling parameters of the structure.
        calls: Tools may be called.

    Raises:
        RequestError: It is wrong.
    """
    form = _writable(reading) if calls else None
    structure = SamplingParams(**wanted).structure
    if structure is None or (form is None and reading.begun is None):
        return None
    return grammar_of_answers(
        structure,
        form,
        reading.tools,
        tokenizer,
        parallel=reading.most_calls != 1,
        thoughts=reading.begun,
    )


def _writable(reading: Reading) -> CallFormat | None:
    """The format of calls that a grammar can write beside texts; None where nothing is called, or a
    text may be a call."""
    if not reading.tools or reading.calls is None or reading.calls.bare:
        return None
    if reading.calls.style == "harmony":
        return None
    return HERMES if reading.calls in (XML, GLM) else reading.calls


def strict_grammar(
    reading: Reading, tokenizer: Tokenizer, tools: Sequence[Mapping[str, Any]], *, only: bool
) -> str | None:
    """The grammar of messages that may call, where a tool is ``strict``, or ``only`` some may be
    called, and calls begin with a token that a grammar can see; else None."""
    strict = only or any(one["function"].get("strict") for one in tools)
    if reading.calls is None or not strict:
        return None
    return grammar_of_strict_calls(
        HERMES if reading.calls in (XML, GLM) else reading.calls,
        reading.tools,
        tokenizer,
        parallel=reading.most_calls != 1,
        thoughts=reading.thoughts,
    )


def _callable(reading: Reading) -> Reading:
    """A reading in whose format a grammar can write calls."""
    if reading.calls is None:
        return replace(reading, calls=JSON)
    if reading.calls is PYTHON:
        return replace(reading, calls=JSON)
    return replace(reading, calls=HERMES) if reading.calls in (XML, GLM) else reading


def _text(content: object) -> str:
    """A content as one text."""
    if not isinstance(content, list):
        return str(content or "")
    parts = [one.get("text") if isinstance(one, dict) else one for one in content]
    return "\n".join(one for one in parts if isinstance(one, str))


@cache
def _note_unknown() -> None:
    """Say once that calls are not found."""
    _LOG.warning("the chat template shows no known format of calls: they are left in the text")
