"""`Envelope`: what all answers to one request have in common."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from optc.serve.answering.json_bytes import json_bytes
from optc.serve.models import ServedModel

#: Ends a stream.
DONE = b"data: [DONE]\n\n"


class Envelope:
    """The head of an answer and of each chunk of a stream.

    Args:
        kind: ``chatcmpl`` or ``cmpl``: how its id begins.
        whole: ``object`` of a whole answer.
        chunk: ``object`` of a chunk.
        model: Who answers.
    """

    def __init__(self, kind: str, whole: str, chunk: str, model: ServedModel) -> None:
        self.id = f"{kind}-{uuid.uuid4().hex}"
        rest: dict[str, Any] = {"created": int(time.time()), "model": model.name}
        if model.fingerprint is not None:  # no null: OpenAI's schema has a text or nothing there
            rest["system_fingerprint"] = model.fingerprint
        self._whole = {"id": self.id, "object": whole, **rest}
        # The same in every chunk: written once.
        head = json_bytes({"id": self.id, "object": chunk, **rest})[:-1]
        self._begin = b"data: " + head + b',"choices":'

    def whole(self, choices: Sequence[Mapping[str, Any]], usage: object) -> dict[str, Any]:
        """A whole answer."""
        return {**self._whole, "choices": choices, "usage": usage}

    def chunk(self, choices: Sequence[Mapping[str, Any]], usage: object = None) -> bytes:
        """A chunk of a stream, with ``usage`` where there is one."""
        more = b"" if usage is None else b',"usage":' + json_bytes(usage)
        return self._begin + json_bytes(choices) + more + b"}\n\n"
