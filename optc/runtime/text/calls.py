"""Calls of tools in messages, in the form that a chat template reads.

OpenAI's clients send a call's arguments as JSON text. Most templates want an object, and would
write a text of that text, or fail; some write what they are given, and would print an object as a
Python value, or fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from optc.errors import RequestError

#: How a template reads arguments; ``any`` where that cannot be told.
ArgumentsForm = Literal["objects", "texts", "any"]
_ARGUMENTS = {"qzxk": "qzxv"}
_TEXT = json.dumps(_ARGUMENTS)


def find_arguments_form(render: Callable[[list[dict[str, Any]]], str]) -> ArgumentsForm:
    """The form in which a template reads the arguments of calls.

    Args:
        render: Renders messages; its RequestError says that the template refuses them.
    """
    objects, texts = (_shown(render, given) for given in (_ARGUMENTS, _TEXT))
    if "qzxv" in objects and str(_ARGUMENTS) not in objects:
        return "objects"
    return "texts" if _TEXT in texts else "any"


def with_arguments(message: dict[str, Any], form_of: Callable[[], ArgumentsForm]) -> dict[str, Any]:
    """The message with the arguments of its calls in the form that the template reads.

    Args:
        message: A plain copy.
        form_of: Asked where there are calls.
    """
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return message
    form = form_of()
    return message if form == "any" else {**message, "tool_calls": [_call(c, form) for c in calls]}


def _call(call: Any, form: ArgumentsForm) -> Any:
    if not isinstance(call, Mapping):
        return call
    function = call.get("function")
    if isinstance(function, Mapping):
        return {**call, "function": _call(function, form)}
    arguments = call.get("arguments")
    if form == "texts" and isinstance(arguments, Mapping):
        return {**call, "arguments": json.dumps(arguments, ensure_ascii=False)}
    if form == "objects" and isinstance(arguments, str):
        try:
            value = json.loads(arguments or "{}")
        except (ValueError, RecursionError):  # what a model wrote may be anything
            return call
        return {**call, "arguments": value} if isinstance(value, dict) else call
    return call


def _shown(render: Callable[[list[dict[str, Any]]], str], arguments: object) -> str:
    """A conversation with a call; empty where the template refuses it."""
    function = {"name": "f", "arguments": arguments}
    call = {"id": "123456789", "type": "function", "function": function}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "name": "f", "tool_call_id": "123456789", "content": "x"}
    try:
        return render([{"role": "user", "content": "x"}, said, result])
    except RequestError:
        return ""
