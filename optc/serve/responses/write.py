"""`ResponseWriter`: responses and the events of their streams."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from optc.runtime.openai.logprobs import of_turn
from optc.runtime.outputs import Delta, RequestOutput
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from optc.serve.answering.token_texts import token_texts
from optc.serve.answering.turns import Change, Item, Turn, named_event
from optc.serve.answering.usage import usage_of
from optc.serve.api_errors import APIError
from optc.serve.models import check_model
from optc.serve.responses.ask import AskedResponse

#: Fields of the body that a response repeats, and what they are where it does not state them.
_REPEATED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "user": None,
    "safety_identifier": None,
    "prompt_cache_key": None,
    "max_tool_calls": None,
}
_TOOL = {"description": None, "parameters": None, "strict": None}
_DONE = b"data: [DONE]\n\n"
_PREFIXES = {"thought": "rs", "text": "msg", "call": "fc"}


class ResponseWriter:
    """Writes one response.

    Args:
        asked: What was asked for.

    Attributes:
        finished: The whole response, once there is one.
    """

    def __init__(self, asked: AskedResponse) -> None:
        reading, tokenizer = asked.asked.reading, check_model(asked.asked.model)
        self._asked = asked
        self._turn = Turn(reading.reader(), shows_thoughts=reading.shows_thoughts)
        self._texts = token_texts(tokenizer)
        self._created = int(time.time())
        self.finished: dict[str, Any] | None = None
        self._number = 0
        self._logprobs: list[TokenLogprobs] = []  # of all tokens so far
        self._sent = 0  # how many of them events have given
        self._first = 0  # of the text that is written now

    @property
    def shows(self) -> bool:
        """There is something for a user."""
        return self._turn.shows

    def whole(self, output: RequestOutput) -> dict[str, Any]:
        """A finished response."""
        completion = output.completions[0]
        self._logprobs = list(completion.logprobs or ())
        self._turn.feed(completion.text)
        self._turn.finish(completion.finish_reason)
        return self._finished(output)

    def begin(self) -> bytes:
        """The response is there, and empty."""
        response = self._response("in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def feed(self, delta: Delta) -> bytes:
        """The events that a delta adds."""
        self._logprobs += delta.logprobs
        changes = self._turn.feed(delta.text)
        if delta.finish_reason is not None:
            changes += self._turn.finish(delta.finish_reason)
        return b"".join(map(self._changed, changes))

    def end(self, output: RequestOutput) -> bytes:
        """The response is whole."""
        response = self._finished(output)
        return self._event(f"response.{response['status']}", response=response) + _DONE

    def failed(self, error: APIError) -> bytes:
        """It will not be."""
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        response = self._response("failed", [_item(one, "incomplete") for one in self._turn.items])
        response["error"] = {"code": code, "message": error.message}
        return self._event("response.failed", response=response) + _DONE

    def message(self) -> dict[str, Any]:
        """The turn as a message of a conversation, to go on with."""
        items = self._turn.items
        found: dict[str, Any] = {"role": "assistant", "content": _joined(items, "text")}
        if thought := _joined(items, "thought"):
            found["reasoning"] = thought
        if calls := [one for one in items if one.kind == "call"]:
            found["tool_calls"] = [
                {
                    "id": f"call_{one.id}",
                    "type": "function",
                    "function": {"name": one.name, "arguments": one.text},
                }
                for one in calls
            ]
        return found

    def _finished(self, output: RequestOutput) -> dict[str, Any]:
        cut = output.finish_reason in ("length", "deadline")
        items = [_item(one, "completed") for one in self._turn.items]
        if cut and items and "status" in items[-1]:
            items[-1]["status"] = "incomplete"
        self._give_logprobs(items)
        response = self._response("incomplete" if cut else "completed", items)
        if cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            response["completed_at"] = int(time.time())
        usage = usage_of(self._asked.asked, [output])
        thought = usage.get("completion_tokens_details", {"reasoning_tokens": 0})
        response["usage"] = {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage["prompt_tokens_details"] | {"cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": thought,
            "total_tokens": usage["total_tokens"],
        }
        self.finished = response
        return response

    def _give_logprobs(self, items: list[dict[str, Any]]) -> None:
        """All of them to the text, if there is one."""
        texts = [one for one in items if one["type"] == "message"]
        if texts and self._logprobs:
            found = of_turn(self._logprobs, self._texts.text_of, self._texts.bytes_of)["content"]
            texts[-1]["content"][0]["logprobs"] = found

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        body = self._asked.body
        stated = {name: body.get(name) for name in _REPEATED}
        repeated = {n: _REPEATED[n] if value is None else value for n, value in stated.items()}
        repeated["tools"] = [_TOOL | one for one in repeated["tools"]]
        return {
            "id": self._asked.id,
            "object": "response",
            "created_at": self._created,
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self._asked.asked.model.name,
            "output": output,
            "service_tier": "default",
            "usage": None,
            **repeated,
        }

    def _changed(self, change: Change) -> bytes:
        item, place = change.item, {"output_index": change.item.place}
        if change.verb == "opens":
            added = self._event(
                "response.output_item.added", item=_item(item, "in_progress", empty=True), **place
            )
            if item.kind == "call":
                return added
            self._first = self._sent
            return added + self._event(
                "response.content_part.added", **_inside(item), part=_part(item, ""), **place
            )
        if change.verb == "grows":
            more = {"logprobs": self._shown(self._sent)} if item.kind == "text" else {}
            name = f"response.{_name(item)}.delta"
            return self._event(name, **_inside(item), delta=change.text, **more, **place)
        return self._closed(item, place)

    def _closed(self, item: Item, place: dict[str, int]) -> bytes:
        name = f"response.{_name(item)}.done"
        if item.kind == "call":
            said = {"name": item.name, "arguments": item.text}
            done = self._event(name, **_inside(item), **said, **place)
        else:
            more = {"logprobs": self._shown(self._first)} if item.kind == "text" else {}
            done = self._event(
                name, **_inside(item), text=item.text, **more, **place
            ) + self._event(
                "response.content_part.done",
                **_inside(item),
                part=_part(item, item.text),
                **place,
            )
        whole = _item(item, "completed")
        return done + self._event("response.output_item.done", item=whole, **place)

    def _shown(self, first: int) -> list[dict[str, Any]]:
        """Log-probabilities of the tokens from one on, as events of a text have them: without
        bytes. They are given then."""
        self._sent = len(self._logprobs)
        entries = of_turn(self._logprobs[first:], self._texts.text_of)["content"]
        for entry in entries:
            for one in (entry, *entry["top_logprobs"]):
                del one["bytes"]
        return list(entries)

    def _event(self, kind: str, /, **values: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._number, **values}
        self._number += 1
        return named_event(kind, data)


def _name(item: Item) -> str:
    """Of what grows in the events."""
    names = {"thought": "reasoning_text", "text": "output_text", "call": "function_call_arguments"}
    return names[item.kind]


def _id(item: Item) -> str:
    return f"{_PREFIXES[item.kind]}_{item.id}"


def _inside(item: Item) -> dict[str, Any]:
    """The place of an event."""
    return {"item_id": _id(item)} | ({} if item.kind == "call" else {"content_index": 0})


def _part(item: Item, text: str) -> dict[str, Any]:
    if item.kind == "thought":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item(item: Item, status: str, *, empty: bool = False) -> dict[str, Any]:
    """An item of the output."""
    text = "" if empty else item.text
    if item.kind == "call":
        return {
            "type": "function_call",
            "id": _id(item),
            "call_id": f"call_{item.id}",
            "name": item.name,
            "arguments": text,
            "status": status,
        }
    content = [] if empty else [_part(item, text)]
    if item.kind == "thought":
        return {"type": "reasoning", "id": _id(item), "summary": [], "content": content}
    said = {"role": "assistant", "status": status, "content": content}
    return {"type": "message", "id": _id(item), **said}


def _joined(items: list[Item], kind: str) -> str:
    return "\n".join(one.text for one in items if one.kind == kind)
