"""`Piece`: a bit of what an assistant says, thinks or calls, and who finds it in a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Said:
    """Text for the user."""

    text: str


@dataclass(frozen=True)
class Thought:
    """Text that leads to an answer."""

    text: str


@dataclass(frozen=True)
class CallBegun:
    """A call of a function.

    Attributes:
        index: Which of the message's calls, from 0.
        name: The function's.
    """

    index: int
    name: str


@dataclass(frozen=True)
class CallArguments:
    """Some of the JSON text of a call's arguments.

    Attributes:
        index: Which of the message's calls.
        text: To be joined with what came before.
    """

    index: int
    text: str


Piece = Said | Thought | CallBegun | CallArguments


class Reader(Protocol):
    """Finds the pieces of one message. The pieces of a text, joined, are the same however it is
    cut."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that some more text adds."""

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """The pieces that were held back, once the text has ended.

        Args:
            cut: It ended by a limit, so that its end may be half a mark, which is then no piece.
        """


class PlainReader:
    """All of the text is said."""

    def feed(self, text: str) -> list[Piece]:
        """The text."""
        return [Said(text)] if text else []

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """Nothing."""
        return []
