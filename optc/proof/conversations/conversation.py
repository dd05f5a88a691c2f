"""`Conversation`: messages, tools and the form of answers, as a line of a ``.jsonl`` file has them.

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}],
     "tools": [{"type": "function", "function": {"name": "…", "parameters": {…}}}],
     "response_format": {"type": "json_schema", "json_schema": {"schema": {…}}}}

These are the names of the chat completions interface, which chat templates read, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optc.errors import InputError
from optc.system.safe_json import JSONError, parse_json

ROLES = ("system", "developer", "user", "assistant", "tool")
_EXAMPLE = 'such as {"messages": [{"role": "user", "content": "…"}, …]}'


@dataclass(frozen=True)
class Conversation:
    """One conversation.

    Attributes:
        messages: In order; each has a ``role``, and ``content`` or ``tool_calls``, whose arguments
            are mappings.
        tools: Functions that the assistant may call: ``{"type": "function", "function": …}``.
        schema: JSON schema of the answers that are no calls; empty if they are free text.
        where: File and line, for messages.
    """

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...]
    schema: dict[str, Any]
    where: str

    @property
    def answers(self) -> tuple[int, ...]:
        """The places of the assistant's messages."""
        return tuple(i for i, one in enumerate(self.messages) if one["role"] == "assistant")

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools, in order."""
        return tuple(str(tool["function"]["name"]) for tool in self.tools)


def read_conversation(line: Mapping[str, Any], where: str) -> Conversation:
    """The conversation that a JSON object states.

    Args:
        line: With ``messages``.
        where: File and line.

    Raises:
        InputError: It is none; says which message is wrong.
    """
    messages = line["messages"]
    if not isinstance(messages, list) or not messages:
        raise InputError("messages is no list of messages", where=where, hint=_EXAMPLE)
    tools = tuple(_tool(one, where) for one in _list(line, "tools", where))
    read = tuple(_message(one, number, where) for number, one in enumerate(messages, start=1))
    found = Conversation(read, tools, _schema(line, where), where)
    if not found.answers:
        raise InputError(
            "no message is the assistant's: there is no answer to score",
            where=where,
            hint="end the conversation with what a good assistant says",
        )
    for number, one in enumerate(read, start=1):
        _check_calls(one, found.tool_names, f"message {number}", where)
    return found


def calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a message."""
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    return calls


def no_template(conversation: Conversation) -> InputError:
    """The error for a conversation that no template renders, to be raised."""
    return InputError(
        "the model has no chat template to render a conversation with",
        where=conversation.where,
        hint='give texts: {"text": "…"} a line',
    )


def _message(given: object, number: int, where: str) -> dict[str, Any]:
    name = f"message {number}"
    if not isinstance(given, dict):
        raise InputError(f"{name} is no object", where=where, hint=_EXAMPLE)
    role = given.get("role")
    if role not in ROLES:
        raise InputError(
            f"{name} has the role {role!r}", where=where, hint=f"one of {', '.join(ROLES)}"
        )
    content, calls = given.get("content"), _list(given, "tool_calls", where)
    if not isinstance(content, str | list) and not (content is None and calls):
        raise InputError(
            f"{name} has no content", where=where, hint="a text; calls of tools may stand alone"
        )
    if calls and role != "assistant":
        raise InputError(f"{name} calls tools, and is not the assistant's", where=where)
    message = {**given, "content": "" if content is None else content}
    if calls:
        message["tool_calls"] = [_call(one, name, where) for one in calls]
    else:
        message.pop("tool_calls", None)
    return message


def _call(given: object, name: str, where: str) -> dict[str, Any]:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(function, dict):
        raise _bad_call(name, where)
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):  # as the interface has them, where templates want a mapping
        try:
            arguments = parse_json(arguments)
        except JSONError as error:
            raise InputError(f"{name}: arguments are no JSON: {error}", where=where) from error
    if not isinstance(function.get("name"), str) or not isinstance(arguments, dict):
        raise _bad_call(name, where)
    return {**given, "type": "function", "function": {**function, "arguments": arguments}}


def _bad_call(name: str, where: str) -> InputError:
    hint = 'each is {"function": {"name": "…", "arguments": {…}}}'
    return InputError(f"{name} has a call that is none", where=where, hint=hint)


def _check_calls(message: Mapping[str, Any], names: tuple[str, ...], name: str, where: str) -> None:
    for call in calls_of(message):
        called = call["function"]["name"]
        if called not in names:
            known = f"its tools are {', '.join(names)}" if names else "it has no tools"
            raise InputError(f"{name} calls {called!r}", where=where, hint=known)


def _tool(given: object, where: str) -> dict[str, Any]:
    function = given.get("function", given) if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InputError(
            "tools has an element that is no function",
            where=where,
            hint='each is {"type": "function", "function": {"name": "…", "parameters": {…}}}',
        )
    if not isinstance(function.get("parameters", {}), dict):
        raise InputError(f"parameters of {function['name']} are no schema", where=where)
    return {"type": "function", "function": function}


def _schema(line: Mapping[str, Any], where: str) -> dict[str, Any]:
    form = line.get("response_format")
    if form is None:
        return {}
    inner = form.get("json_schema") if isinstance(form, dict) else None
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if not isinstance(schema, dict):
        raise InputError(
            "response_format has no JSON schema",
            where=where,
            hint='{"type": "json_schema", "json_schema": {"schema": {…}}}',
        )
    return schema


def _list(given: Mapping[str, Any], key: str, where: str) -> list[Any]:
    found = given.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise InputError(f"{key} is no list", where=where)
    return found
