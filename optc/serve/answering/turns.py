"""`Turn`: an assistant's turn as items that open, grow and close: thoughts, texts and calls."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from optc.errors import OptcError
from optc.runtime.handle import Handle
from optc.runtime.outputs import Delta, FinishReason, RequestOutput
from optc.runtime.parsing.pieces import CallArguments, CallBegun, Piece, Reader, Said, Thought
from optc.serve.answering.json_bytes import json_bytes
from optc.serve.answering.pace import Pace
from optc.serve.answering.streams import cancel_all, check_output, come_together
from optc.serve.api_errors import APIError, of_error

Kind = Literal["thought", "text", "call"]


@dataclass
class Item:
    """A part of a turn.

    Attributes:
        kind: What it is.
        place: Its place in the turn.
        text: What it says so far; of a call the JSON text of its arguments.
        name: Of a called function.
        id: Its own.
    """

    kind: Kind
    place: int
    text: str = ""
    name: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:24])


@dataclass(frozen=True)
class Change:
    """A change of an item.

    Attributes:
        verb: It ``opens``, it ``grows`` by ``text``, or it ``closes``.
        item: The item.
        text: That it grows by.
    """

    verb: Literal["opens", "grows", "closes"]
    item: Item
    text: str = ""


class Turn:
    """The items of a turn; at most the last one is open.

    Args:
        reader: Finds what is said, thought and called.
        shows_thoughts: Have items of thoughts.
    """

    def __init__(self, reader: Reader, *, shows_thoughts: bool = True) -> None:
        self._reader = reader
        self._shows_thoughts = shows_thoughts
        self._open = False
        self.items: list[Item] = []

    def feed(self, text: str) -> list[Change]:
        """The changes that some more text makes."""
        return self._changes(self._reader.feed(text))

    def finish(self, reason: FinishReason) -> list[Change]:
        """The changes once the text has ended, and why it did; there is at least one item then."""
        changes = self._changes(self._reader.finish(cut=reason != "stop"))
        if not self.items:
            changes += self._opened("text")
        return changes + self._closed()

    @property
    def shows(self) -> bool:
        """It has something for a user: a text or a call."""
        return any(item.kind != "thought" for item in self.items)

    @property
    def calls(self) -> bool:
        """It calls something."""
        return any(item.kind == "call" for item in self.items)

    def _changes(self, pieces: Sequence[Piece]) -> list[Change]:
        found: list[Change] = []
        for piece in pieces:
            if isinstance(piece, CallBegun):
                found += self._opened("call", piece.name)
            elif isinstance(piece, CallArguments):
                found += self._grown(piece.text)
            elif isinstance(piece, Said):
                found += self._continued("text", piece.text)
            elif isinstance(piece, Thought) and self._shows_thoughts:
                found += self._continued("thought", piece.text)
        return found

    def _continued(self, kind: Kind, text: str) -> list[Change]:
        same = self._open and self.items[-1].kind == kind
        return ([] if same else self._opened(kind)) + self._grown(text)

    def _opened(self, kind: Kind, name: str = "") -> list[Change]:
        closed = self._closed()
        self.items.append(Item(kind, len(self.items), name=name))
        self._open = True
        return [*closed, Change("opens", self.items[-1])]

    def _grown(self, text: str) -> list[Change]:
        item = self.items[-1]
        item.text += text
        return [Change("grows", item, text)]

    def _closed(self) -> list[Change]:
        was_open, self._open = self._open, False
        return [Change("closes", self.items[-1])] if was_open else []


class TurnWriter(Protocol):
    """Writes the events of a turn, in the form of one API."""

    @property
    def shows(self) -> bool:
        """There is something for a user."""

    def begin(self) -> bytes:
        """Before anything is there."""

    def feed(self, delta: Delta) -> bytes:
        """The changes that a delta makes; maybe none."""

    def end(self, output: RequestOutput) -> bytes:
        """The turn is whole."""

    def failed(self, error: APIError) -> bytes:
        """It will not be."""


async def turn_events(
    handle: Handle,
    writer: TurnWriter,
    facts: dict[str, Any],
    pace: Pace,
    published: Callable[[], None] = lambda: None,
) -> AsyncGenerator[bytes, None]:
    """Server-sent events of one turn. What goes wrong meanwhile is an event, too. Who closes it
    cancels the request.

    Args:
        handle: Its request.
        writer: Writes its events.
        facts: Where the log finds how many tokens there were, and what went wrong.
        pace: How often it sends.
        published: Called when there is something to be shown to a user.
    """
    written, shown = 0, False
    try:
        yield writer.begin()
        async for _, (delta,) in come_together(handle, pace):
            if delta.finish_reason in ("error", "cancelled"):
                check_output(await handle)
            written += len(delta.token_ids)
            if added := writer.feed(delta):
                yield added
            if not shown and writer.shows:
                shown = True
                published()
        yield writer.end(check_output(await handle))
    except (OptcError, APIError) as error:
        told = of_error(error) if isinstance(error, OptcError) else error
        facts["error"] = told.status
        yield writer.failed(told)
    finally:
        facts["completion_tokens"] = written
        cancel_all([handle])


def named_event(name: str, data: object) -> bytes:
    """A server-sent event with a name; ``data`` becomes JSON."""
    return f"event: {name}\ndata: ".encode() + json_bytes(data) + b"\n\n"
