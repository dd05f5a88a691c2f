"""From the body of ``/v1/responses`` to a chat."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optc.errors import OptcError
from optc.serve.api_errors import APIError, of_error
from optc.serve.asking.asked import Asked, Asker
from optc.serve.asking.chat import ask_chat
from optc.serve.asking.read_body import validated
from optc.serve.models import ModelTable
from optc.serve.responses.body import ResponseBody
from optc.serve.responses.kept import Kept
from optc.serve.settings import Limits

#: Fields that have another form in a chat, or none.
_OWN = frozenset(ResponseBody.model_fields) - {"model", "temperature", "top_p", "stream"}
#: Known fields that cannot be followed.
_REFUSED = {
    "conversation": "use previous_response_id",
    "prompt": "send the text as input",
    "max_tool_calls": "leave it out",
}
#: Fields of a chat, by their names here.
_NAMES = {"max_tokens": "max_output_tokens", "messages": "input", "prompt": "input"}
_ROLES = {"developer": "system"}


@dataclass(frozen=True)
class AskedResponse:
    """A request that has been read.

    Attributes:
        id: Of the response.
        body: As it came.
        messages: The conversation up to here, to be kept.
        asked: Of the runtime.
    """

    id: str
    body: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    asked: Asked


def ask_response(
    body: dict[str, Any], models: ModelTable, asker: Asker, limits: Limits, kept: Kept
) -> AskedResponse:
    """Read a body.

    Args:
        body: JSON.
        models: Of the server.
        asker: Who asks.
        limits: What may be asked for.
        kept: Earlier responses.

    Raises:
        APIError: It is wrong, or asks for too much.
    """
    chat, messages = _asked_chat(body, asker, kept)
    try:
        asked = ask_chat(chat, models, asker, limits)
    except (APIError, OptcError) as error:
        wrong = of_error(error) if isinstance(error, OptcError) else error
        wrong.param = _NAMES.get(wrong.param or "", wrong.param)
        raise wrong from error
    return AskedResponse(f"resp_{uuid.uuid4().hex}", body, messages, asked)


def ask_input_tokens(body: dict[str, Any], asker: Asker, kept: Kept) -> dict[str, Any]:
    """Read the body of ``/v1/responses/input_tokens`` as that of a chat.

    Raises:
        APIError: It is wrong.
    """
    return _asked_chat(body, asker, kept)[0]


def _asked_chat(
    body: dict[str, Any], asker: Asker, kept: Kept
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The body of a chat, and its messages but for the instructions, which are not kept."""
    validated(ResponseBody, body)
    _check(body)
    before: Sequence[Mapping[str, Any]] = ()
    if (previous := body.get("previous_response_id")) is not None:
        before = kept.find(previous, asker.salt).messages
    messages = [*map(dict, before), *_messages(body["input"])]
    instructions = body.get("instructions")
    told = [{"role": "system", "content": instructions}] if instructions else []
    return _chat(body) | {"messages": [*told, *messages]}, messages


def _check(body: Mapping[str, Any]) -> None:
    for name, hint in _REFUSED.items():
        if body.get(name) is not None:
            raise APIError(400, f"{name} is not supported: {hint}", name)
    if body.get("background"):
        raise APIError(400, "background is not supported: stream the answer", "background")
    if body.get("truncation") not in (None, "disabled"):
        raise APIError(400, "truncation is not supported: shorten the input", "truncation")


def _chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a chat but for its messages."""
    found = {
        name: value for name, value in body.items() if name not in _OWN and name not in _REFUSED
    }
    found["max_completion_tokens"] = body.get("max_output_tokens")
    found["parallel_tool_calls"] = body.get("parallel_tool_calls")
    found["tools"] = [_tool(one) for one in body.get("tools") or ()]
    found["tool_choice"] = _choice(body.get("tool_choice"))
    found["reasoning_effort"] = (body.get("reasoning") or {}).get("effort")
    found["response_format"] = _format((body.get("text") or {}).get("format"))
    if body.get("top_logprobs") or "message.output_text.logprobs" in (body.get("include") or ()):
        found |= {"logprobs": True, "top_logprobs": body.get("top_logprobs") or 0}
    return {name: value for name, value in found.items() if value is not None}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function" or not tool.get("name"):
        message = f"tools are functions with a name, not {str(tool['type'])[:64]!r}"
        raise APIError(400, message, "tools")
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {n: tool[n] for n in names if tool.get(n) is not None}}


def _choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    if choice["type"] == "allowed_tools":
        if not choice.get("mode"):
            raise APIError(400, "tool_choice.mode is missing", "tool_choice.mode")
        named = [_choice(one) for one in choice.get("tools") or ()]
        return {**choice, "allowed_tools": {"mode": choice["mode"], "tools": named}}
    if choice["type"] != "function" or not choice.get("name"):
        raise APIError(400, "tool_choice names a function", "tool_choice")
    return {"type": "function", "function": {"name": choice["name"]}}


def _format(form: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if form is None or form["type"] != "json_schema":
        return None if form is None else {"type": form["type"]}
    if form.get("schema") is None:
        raise APIError(400, "a json_schema needs a schema", "text.format.schema")
    return {"type": "json_schema", "json_schema": {"schema": form["schema"]}}


def _messages(given: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Items as messages; calls of one turn, and what was thought before, are one message."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    found: list[dict[str, Any]] = []
    for place, item in enumerate(given):
        kind = item.get("type") or "message"
        if kind == "message":
            _add_message(found, item, place)
        elif kind == "function_call":
            function = {"name": item.get("name") or "", "arguments": item.get("arguments") or "{}"}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            _turn(found).setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            _check_parts(item.get("output"), f"input.{place}.output")
            output = _text(item.get("output"))
            found.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
        elif kind == "reasoning":
            thought = _text(item.get("content")) or _text(item.get("summary"))
            found.append({"role": "assistant", "content": "", "reasoning": thought})
        else:
            raise APIError(400, f"items of type {kind[:64]!r} are not taken", f"input.{place}.type")
    return found


def _add_message(found: list[dict[str, Any]], item: Mapping[str, Any], place: int) -> None:
    role = item.get("role")
    if not role:
        raise APIError(400, f"input.{place}.role is missing", f"input.{place}.role")
    _check_parts(item.get("content"), f"input.{place}.content")
    text = _text(item.get("content"))
    if role == "assistant" and found and found[-1].get("reasoning") and not found[-1]["content"]:
        found[-1]["content"] = text
    else:
        found.append({"role": _ROLES.get(role, role), "content": text})


def _check_parts(content: Any, where: str) -> None:
    """Refuse parts that are no text: the model would not see them."""
    for part in content if isinstance(content, list) else ():
        if not isinstance(part.get("text"), str):
            raise APIError(400, f"a part of type {part['type'][:64]!r}: only text is taken", where)


def _turn(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that calls belong to."""
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": ""})
    return found[-1]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or ())
