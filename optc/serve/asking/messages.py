"""Messages of clients as chat templates want them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from optc.runtime.parsing.formats import MISTRAL, call_format

#: Mistral's templates refuse ids of calls that are not so many letters and digits.
_ID = 9


def for_template(messages: Sequence[Mapping[str, Any]], template: str) -> list[dict[str, Any]]:
    """Messages whose calls have objects as arguments: OpenAI's clients send their JSON text. Ids of
    calls are as the template wants them."""
    shortens = call_format(template) is MISTRAL
    found = []
    for message in messages:
        more: dict[str, Any] = {}
        if calls := message.get("tool_calls"):
            more["tool_calls"] = [_call(one, shortens) for one in calls]
        if shortens and isinstance(name := message.get("tool_call_id"), str):
            more["tool_call_id"] = _short(name)
        found.append({**message, **more})
    return found


def _call(call: Mapping[str, Any], shortens: bool) -> dict[str, Any]:
    given = call.get("id")
    more = {"id": _short(given)} if shortens and isinstance(given, str) else {}
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return {**call, **more}
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):  # what a model wrote may be anything
        return {**call, **more}
    return {**call, **more, "function": {**function, "arguments": value}}


def _short(name: str) -> str:
    """The same short id for the same id; one that is short already stays."""
    if len(name) == _ID and name.isascii() and name.isalnum():
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_ID]
