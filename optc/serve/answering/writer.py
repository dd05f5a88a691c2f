"""`Writer`: the choices of an answer, in the form of one route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from optc.runtime.outputs import Completion, Delta, FinishReason, RequestOutput
from optc.serve.answering.envelope import Envelope

#: OpenAI's names of reasons that are called otherwise here.
_REASONS: Mapping[str, str] = {"deadline": "length", "cancelled": "stop"}


class Writer(Protocol):
    """Writes choices. A choice is one of n texts of one prompt; they are counted through."""

    envelope: Envelope

    def opening(self, choice: int) -> dict[str, Any] | None:
        """The chunk that begins a choice of a stream."""

    def delta(self, choice: int, delta: Delta) -> dict[str, Any] | None:
        """The chunk that a delta adds to a stream; None is nothing."""

    def whole(self, choice: int, completion: Completion, output: RequestOutput) -> dict[str, Any]:
        """A finished choice."""


def finish_reason(reason: FinishReason | None) -> str | None:
    """In OpenAI's words."""
    return None if reason is None else _REASONS.get(reason, reason)


def whole_choices(writer: Writer, outputs: Sequence[RequestOutput]) -> list[dict[str, Any]]:
    """Of each prompt all choices, one after the other."""
    pairs = [(one, output) for output in outputs for one in output.completions]
    return [writer.whole(index, one, output) for index, (one, output) in enumerate(pairs)]
