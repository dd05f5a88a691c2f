"""`MessageWriter`: messages in Anthropic's form, and the events of their streams."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from optc.runtime.outputs import Completion, Delta, RequestOutput
from optc.serve.answering.turns import Change, Item, Turn, named_event
from optc.serve.answering.usage import usage_of
from optc.serve.api_errors import APIError
from optc.serve.asking.asked import Asked
from optc.serve.messages.errors import error_json
from optc.serve.models import check_model

#: Figures that clients may look for, and that there are not here.
_USAGE: Mapping[str, Any] = {
    "cache_creation": None,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "inference_geo": None,
    "output_tokens_details": None,
    "server_tool_use": None,
    "service_tier": "standard",
}


class MessageWriter:
    """Writes one message.

    Args:
        asked: What was asked for.
        prompt: The prompt as the model sees it.
    """

    def __init__(self, asked: Asked, prompt: tuple[int, ...]) -> None:
        self._tokenizer = check_model(asked.model)
        self._eos = frozenset(asked.model.engine.eos_token_ids)
        self._stops = asked.requests[0].params.stop_strings
        self._asked = asked
        self._read = len(prompt)
        self._turn = Turn(asked.reading.reader(), shows_thoughts=asked.reading.shows_thoughts)
        self._head = {
            "id": f"msg_{uuid.uuid4().hex[:24]}",
            "type": "message",
            "role": "assistant",
            "model": asked.model.name,
            "container": None,
            "stop_details": None,
        }

    @property
    def shows(self) -> bool:
        """There is something for a user."""
        return self._turn.shows

    def whole(self, output: RequestOutput) -> dict[str, Any]:
        """A finished message."""
        self._turn.feed(output.text)
        self._turn.finish(output.finish_reason)
        content = [_block(item) for item in self._turn.items]
        return {
            **self._head,
            "content": content,
            **self._reason(output),
            "usage": self._usage(output),
        }

    def begin(self) -> bytes:
        """The message is there, and empty."""
        usage = {**_USAGE, "input_tokens": self._read, "output_tokens": 0}
        empty: dict[str, Any] = {
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return _event("message_start", message={**self._head, **empty})

    def feed(self, delta: Delta) -> bytes:
        """The events that a delta adds."""
        changes = self._turn.feed(delta.text)
        if delta.finish_reason is not None:
            changes += self._turn.finish(delta.finish_reason)
        return b"".join(map(_changed, changes))

    def end(self, output: RequestOutput) -> bytes:
        """The message is whole."""
        delta = _event("message_delta", delta=self._reason(output), usage=self._usage(output))
        return delta + _event("message_stop")

    def failed(self, error: APIError) -> bytes:
        """It will not be."""
        return named_event("error", error_json(error))

    def _reason(self, output: RequestOutput) -> dict[str, str | None]:
        reason, sequence = "end_turn", None
        if output.finish_reason in ("length", "deadline"):
            reason = "max_tokens"
        elif self._turn.calls:
            reason = "tool_use"
        elif sequence := self._stopped_by(output.completions[0]):
            reason = "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": sequence}

    def _usage(self, output: RequestOutput) -> dict[str, Any]:
        usage = usage_of(self._asked, [output])
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        counted: dict[str, Any] = {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_read_input_tokens": cached,
            "output_tokens": usage["completion_tokens"],
        }
        if details := usage.get("completion_tokens_details"):
            counted["output_tokens_details"] = {"thinking_tokens": details["reasoning_tokens"]}
        return {**_USAGE, **counted}

    def _stopped_by(self, completion: Completion) -> str | None:
        """The stop sequence that ended a text, which is cut off there."""
        if completion.token_ids[-1:] and completion.token_ids[-1] in self._eos:
            return None
        text = self._tokenizer.decode(completion.token_ids, skip_special_tokens=False)
        places = [(text.find(stop), stop) for stop in self._stops if stop in text]
        return min(places)[1] if places else None


def _block(item: Item, *, empty: bool = False) -> dict[str, Any]:
    text = "" if empty else item.text
    if item.kind == "text":
        return {"type": "text", "text": text, "citations": None}
    if item.kind == "thought":
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {
        "type": "tool_use",
        "id": f"toolu_{item.id}",
        "name": item.name,
        "input": {} if empty else _object(item.text),
        "caller": {"type": "direct"},
    }


def _object(text: str) -> dict[str, Any]:
    """The arguments of a call; of one that was cut, none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _changed(change: Change) -> bytes:
    item = change.item
    if change.verb == "opens":
        block = _block(item, empty=True)
        return _event("content_block_start", index=item.place, content_block=block)
    if change.verb == "closes":
        return _event("content_block_stop", index=item.place)
    deltas: Mapping[str, Sequence[str]] = {
        "text": ("text_delta", "text"),
        "thought": ("thinking_delta", "thinking"),
        "call": ("input_json_delta", "partial_json"),
    }
    kind, key = deltas[item.kind]
    return _event("content_block_delta", index=item.place, delta={"type": kind, key: change.text})


def _event(kind: str, /, **values: Any) -> bytes:
    return named_event(kind, {"type": kind, **values})
