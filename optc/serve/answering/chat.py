"""`ChatWriter`: choices of ``/v1/chat/completions``."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from optc.runtime.openai.logprobs import of_prompt, of_turn
from optc.runtime.outputs import Completion, Delta, FinishReason, RequestOutput
from optc.runtime.parsing.pieces import (
    CallArguments,
    CallBegun,
    Piece,
    Reader,
    Said,
    Thought,
)
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from optc.serve.answering.envelope import Envelope
from optc.serve.answering.token_texts import token_texts
from optc.serve.answering.writer import finish_reason
from optc.serve.asking.asked import Asked
from optc.serve.models import check_model

#: Why a message ended that calls functions.
_CALLS = "tool_calls"


class ChatWriter:
    """Writes messages.

    Args:
        asked: What was asked for.
    """

    def __init__(self, asked: Asked) -> None:
        self.envelope = Envelope(
            "chatcmpl", "chat.completion", "chat.completion.chunk", asked.model
        )
        self._tokenizer = check_model(asked.model)
        self._texts = token_texts(self._tokenizer)
        self._reading = asked.reading
        self._readers: dict[int, Reader] = {}
        self._called: set[int] = set()
        self._token_ids = asked.token_ids

    def opening(self, choice: int) -> dict[str, Any] | None:
        """The role of the speaker."""
        return self._chunk(choice, {"role": "assistant", "content": ""}, (), None)

    def delta(self, choice: int, delta: Delta) -> dict[str, Any] | None:
        """The chunks that a delta adds."""
        pieces = self._read(choice, delta.text, delta.finish_reason)
        reason = self._reason(choice, pieces, finish_reason(delta.finish_reason))
        added = self._added(pieces)
        shows = added or delta.logprobs or reason or (self._token_ids and delta.token_ids)
        if not shows:
            return None
        found = self._chunk(choice, added, delta.logprobs, reason)
        return found | ({"token_ids": list(delta.token_ids)} if self._token_ids else {})

    def whole(self, choice: int, completion: Completion, output: RequestOutput) -> dict[str, Any]:
        """A finished message."""
        pieces = self._read(choice, completion.text, completion.finish_reason)
        reason = self._reason(choice, pieces, finish_reason(completion.finish_reason))
        added = self._added(pieces)
        message: dict[str, Any] = {"role": "assistant", "content": added.pop("content", None)}
        if message["content"] is None and "tool_calls" not in added:
            message["content"] = ""
        for call in added.get("tool_calls", ()):
            del call["index"]  # of streams
        found = {
            "index": choice,
            "message": message | {"refusal": None, "annotations": []} | added,
            "logprobs": self._logprobs(completion.logprobs or ()),
            "finish_reason": reason,
        }
        if self._token_ids:
            found["token_ids"] = list(completion.token_ids)
        if output.prompt_logprobs is not None:
            found["prompt_logprobs"] = of_prompt(output.prompt_logprobs, self._texts.text_of)
        return found

    def _read(self, choice: int, text: str, ended: FinishReason | None) -> list[Piece]:
        reader = self._readers.get(choice)
        if reader is None:
            reader = self._reading.reader()
            self._readers[choice] = reader
        found = reader.feed(text)
        return found if ended is None else found + reader.finish(cut=ended != "stop")

    def _reason(self, choice: int, pieces: Iterable[Piece], reason: str | None) -> str | None:
        if any(isinstance(piece, CallBegun) for piece in pieces):
            self._called.add(choice)
        return _CALLS if reason == "stop" and choice in self._called else reason

    def _added(self, pieces: Iterable[Piece]) -> dict[str, Any]:
        """The fields of a delta, those of one kind joined."""
        found: dict[str, Any] = {}
        calls: dict[int, dict[str, Any]] = {}
        for piece in pieces:
            if isinstance(piece, Said):
                found["content"] = found.get("content", "") + piece.text
            elif isinstance(piece, Thought):
                if self._reading.shows_thoughts:
                    found["reasoning"] = found.get("reasoning", "") + piece.text
            elif isinstance(piece, CallBegun):
                calls[piece.index] = _begun(piece)
            elif isinstance(piece, CallArguments):
                call = calls.setdefault(piece.index, {"index": piece.index, "function": {}})
                function = call["function"]
                function["arguments"] = function.get("arguments", "") + piece.text
        return found | ({"tool_calls": list(calls.values())} if calls else {})

    def _chunk(
        self, choice: int, delta: object, logprobs: Sequence[TokenLogprobs], reason: str | None
    ) -> dict[str, Any]:
        return {
            "index": choice,
            "delta": delta,
            "logprobs": self._logprobs(logprobs),
            "finish_reason": reason,
        }

    def _logprobs(self, positions: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
        if not positions:
            return None
        return of_turn(positions, self._texts.text_of, self._texts.bytes_of)


def _begun(piece: CallBegun) -> dict[str, Any]:
    return {
        "index": piece.index,
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": piece.name, "arguments": ""},
    }
