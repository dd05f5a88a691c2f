"""Tools as plain text, for chat templates that have no place for them.

The tools are told in the system message, calls and results are texts between the tags that Hermes
and Qwen use. Models that were never trained on tools can be asked so, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optc.proof.conversations.conversation import calls_of

_TOLD = (
    "You can call functions. To call one, answer only with\n<tool_call>\n"
    '{"name": …, "arguments": {…}}\n</tool_call>\nFunctions:\n'
)


def tools_in_text(
    messages: Iterable[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Messages that say in their contents which tools there are, what is called, and what it gave.

    Args:
        messages: With calls, and with messages of tools.
        tools: What may be called; nothing any more where there are none.
    """
    told = _TOLD + "\n".join(_json(tool["function"]) for tool in tools)
    found: list[dict[str, Any]] = [{"role": "system", "content": told}] if tools else []
    for message in messages:
        role, content = message["role"], _with_calls(message)
        if role == "tool":
            role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
        if tools and role == "system" and len(found) == 1:
            content = f"{content}\n\n{told}"
            found.clear()
        if found and role == found[-1]["role"] == "user":  # results of several calls at once
            content = f"{found.pop()['content']}\n{content}"
        found.append({"role": role, "content": content})
    return found


def _with_calls(message: Mapping[str, Any]) -> str:
    content = message["content"]
    parts = [content if isinstance(content, str) else _json(content)]
    for call in calls_of(message):
        function = {key: call["function"][key] for key in ("name", "arguments")}
        parts.append(f"<tool_call>\n{_json(function)}\n</tool_call>")
    return "\n".join(filter(None, parts))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
