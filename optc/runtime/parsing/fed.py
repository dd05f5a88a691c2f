"""Readers that are fed a text bit by bit, and give the pieces that have become certain."""

from __future__ import annotations

from optc.runtime.parsing.characters import Characters, Reading
from optc.runtime.parsing.joined import Pieces
from optc.runtime.parsing.pieces import Piece


class FedReader:
    """Feeds a reading character by character; a subclass begins it with `_start`."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._chars = Characters()

    def _start(self, reading: Reading[None]) -> None:
        """Let a reading run up to the first character that it wants."""
        self._reading = reading
        next(reading)

    def feed(self, text: str) -> list[Piece]:
        """The pieces that some more text adds."""
        for character in text:
            self._reading.send(character)
        return self._pieces.take()

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """As of `Reader`."""
        self._chars.cut = cut
        try:
            self._reading.send("")
        except StopIteration:
            return self._pieces.take()
        raise AssertionError("a reader ends where its text does")
