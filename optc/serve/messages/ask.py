"""From the body of ``/v1/messages`` to a chat."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from optc.errors import OptcError
from optc.serve.api_errors import APIError, of_error
from optc.serve.asking.asked import Asked, Asker
from optc.serve.asking.chat import ask_chat
from optc.serve.asking.read_body import validated
from optc.serve.messages.body import CountBody, MessagesBody
from optc.serve.models import ModelTable
from optc.serve.settings import Limits

#: Fields that have another form in a chat, or none.
_OWN = frozenset(MessagesBody.model_fields) - {"model", "temperature", "top_k", "top_p", "stream"}
#: Known fields that ask for nothing here.
_IGNORED = frozenset({"cache_control", "container", "context_management", "output_config"})
_REFUSED = {"mcp_servers": "call them yourself, as tools"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def ask_message(body: dict[str, Any], models: ModelTable, asker: Asker, limits: Limits) -> Asked:
    """Read the body of ``/v1/messages``.

    Raises:
        APIError: It is wrong, or asks for too much.
    """
    validated(MessagesBody, body)
    found = _chat(body) | {"max_tokens": body["max_tokens"]}
    if stops := body.get("stop_sequences"):
        found["stop"] = stops
    try:
        return ask_chat(found, models, asker, limits)
    except OptcError as error:
        raise of_error(error) from error


def ask_count(body: dict[str, Any]) -> dict[str, Any]:
    """Read the body of ``/v1/messages/count_tokens`` as that of a chat.

    Raises:
        APIError: It is wrong.
    """
    validated(CountBody, body)
    return _chat(body)


def _chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a chat, but for what ends its texts."""
    for name, hint in _REFUSED.items():
        if body.get(name):
            raise APIError(400, f"{name} is not supported: {hint}", name)
    found = {k: v for k, v in body.items() if k not in _OWN | _IGNORED}
    told = _text(body.get("system"), "system")
    messages = [{"role": "system", "content": told}] if told else []
    for place, message in enumerate(body["messages"]):
        messages += _messages(message, f"messages.{place}")
    found["messages"] = messages
    last = messages[-1]
    if last["role"] == "assistant" and last["content"] and "tool_calls" not in last:
        found |= {"continue_final_message": True, "add_generation_prompt": False}
    if tools := body.get("tools"):
        found["tools"] = [_tool(one) for one in tools]
    choice = body.get("tool_choice") or {}
    if choice:
        named = {"type": "function", "function": {"name": choice.get("name") or ""}}
        found["tool_choice"] = _CHOICES.get(choice["type"], named)
    if choice.get("disable_parallel_tool_use"):
        found["parallel_tool_calls"] = False
    return found


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        message = f"tools are your own, not {str(tool['type'])[:64]!r}"
        raise APIError(400, message, "tools")
    # In the order that OpenAI's clients send: the model sees it.
    told = {"description": tool["description"]} if tool.get("description") else {}
    function = {"name": tool["name"], **told, "parameters": tool.get("input_schema") or {}}
    return {"type": "function", "function": function}


def _messages(message: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """A message's blocks as messages: results of tools are messages of their own."""
    content, role = message["content"], message["role"]
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    found: list[dict[str, Any]] = []
    said: dict[str, Any] = {"role": role, "content": ""}
    for place, block in enumerate(content):
        kind = block["type"]
        if kind == "text":
            said["content"] += ("\n" if said["content"] else "") + (block.get("text") or "")
        elif kind == "thinking":
            said["reasoning"] = block.get("thinking") or ""
        elif kind == "tool_use":
            arguments = json.dumps(block.get("input") or {})
            function = {"name": block.get("name") or "", "arguments": arguments}
            call = {"id": block.get("id"), "type": "function", "function": function}
            said.setdefault("tool_calls", []).append(call)
        elif kind == "tool_result":
            text = _text(block.get("content"), f"{where}.content.{place}.content")
            found.append(
                {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}
            )
        elif kind != "redacted_thinking":
            raise _no_text(kind, f"{where}.content.{place}.type")
    if said["content"] or len(said) > 2 or not found:
        found.append(said)
    return found


def _text(content: str | Sequence[Mapping[str, Any]] | None, where: str) -> str:
    """The text of a content.

    Raises:
        APIError: A block is no text: the model would not see it.
    """
    if isinstance(content, str):
        return content
    for place, block in enumerate(content or ()):
        if not isinstance(block.get("text"), str):
            raise _no_text(str(block.get("type")), f"{where}.{place}.type")
    return "\n".join(block["text"] for block in content or ())


def _no_text(kind: str, where: str) -> APIError:
    return APIError(400, f"a block of type {kind[:64]!r}: only text is taken", where)
