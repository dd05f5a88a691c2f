"""`Pieces`: pieces of a message as they are found, those of one kind joined."""

from __future__ import annotations

from optc.runtime.parsing.pieces import CallArguments, Piece, Said, Thought


class Pieces:
    """Pieces that have been found and not taken yet."""

    def __init__(self) -> None:
        self._found: list[Piece] = []

    def add(self, piece: Piece) -> None:
        """Add a piece, joined with the last one where both are of one kind."""
        last = self._found[-1] if self._found else None
        if isinstance(piece, Said) and isinstance(last, Said):
            self._found[-1] = Said(last.text + piece.text)
        elif isinstance(piece, Thought) and isinstance(last, Thought):
            self._found[-1] = Thought(last.text + piece.text)
        elif isinstance(piece, CallArguments) and isinstance(last, CallArguments):
            self._found[-1] = CallArguments(piece.index, last.text + piece.text)
        else:
            self._found.append(piece)

    def take(self) -> list[Piece]:
        """All of them; none is left."""
        found, self._found = self._found, []
        return found
