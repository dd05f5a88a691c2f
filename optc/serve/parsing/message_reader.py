"""`MessageReader`: what a message says, thinks and calls, in the format of a model's template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.serve.parsing.calls import CallReader
from optc.serve.parsing.characters import Characters, Reading
from optc.serve.parsing.formats import CallFormat, ThoughtFormat
from optc.serve.parsing.pieces import CallArguments, Piece, Said, Thought


class MessageReader:
    """Reads one message.

    Blanks between thoughts, calls and what is said belong to none of them. What begins like a call
    and is none is said.

    Args:
        calls: Format of calls; None has none.
        thoughts: Format of thoughts; None has none.
        tools: Schemas of the arguments by the names of the functions.
        in_thought: The prompt has begun a thought.
        most_calls: Calls that count, the first ones; None are all.
    """

    def __init__(
        self,
        calls: CallFormat | None,
        thoughts: ThoughtFormat | None,
        tools: Mapping[str, dict[str, Any]],
        *,
        in_thought: bool = False,
        most_calls: int | None = None,
    ) -> None:
        self._format = calls
        self._thoughts = thoughts
        self._names = frozenset(tools)
        self._pieces: list[Piece] = []
        self._chars = Characters()
        self._calls = CallReader(self._chars, self._emit, dict(tools), most_calls)
        self._said = False
        self._reading = self._message(in_thought)
        next(self._reading)

    def feed(self, text: str) -> list[Piece]:
        """The parts that some more text adds."""
        for character in text:
            self._reading.send(character)
        return self._found()

    def finish(self) -> list[Piece]:
        """The parts that were held back, once the text has ended."""
        try:
            self._reading.send("")
        except StopIteration:
            return self._found()
        raise AssertionError("a reader ends where its text does")

    def _found(self) -> list[Piece]:
        found, self._pieces = self._pieces, []
        return found

    def _emit(self, piece: Piece) -> None:
        """Add a piece, joined with the last one where both are of one kind."""
        last = self._pieces[-1] if self._pieces else None
        if isinstance(piece, Said) and isinstance(last, Said):
            self._pieces[-1] = Said(last.text + piece.text)
        elif isinstance(piece, Thought) and isinstance(last, Thought):
            self._pieces[-1] = Thought(last.text + piece.text)
        elif isinstance(piece, CallArguments) and isinstance(last, CallArguments):
            self._pieces[-1] = CallArguments(piece.index, last.text + piece.text)
        else:
            self._pieces.append(piece)

    def _message(self, in_thought: bool) -> Reading[None]:
        chars = self._chars
        yield from chars.fetch()
        if self._thoughts is not None:
            space = yield from chars.skip_space()
            if in_thought or (yield from chars.match((self._thoughts.begin,))):
                yield from self._thought(self._thoughts.end)
            elif space:
                chars.unread(space)
        yield from self._text()

    def _thought(self, end: str) -> Reading[None]:
        chars = self._chars
        yield from chars.skip_space()
        while chars.now:
            space = yield from chars.skip_space()
            if (yield from chars.match((end,))):
                yield from chars.skip_space()
                return
            if chars.now:
                self._emit(Thought(space + chars.now))
                yield from chars.advance()

    def _text(self) -> Reading[None]:
        chars, calls = self._chars, self._format
        begins = calls.begins if calls is not None else ()
        while chars.now:
            chars.mark()
            space = yield from chars.skip_space()
            if (
                calls is not None
                and calls.bare
                and chars.now == "{"
                and not self._said
                and not self._calls.count
            ):
                if not (yield from self._calls.objects(calls.separator, self._names)):
                    self._say("".join(chars.taken))
            elif begins and (yield from chars.match(begins)):
                assert calls is not None
                if not (yield from self._calls.read(calls.ends, calls.separator)):
                    self._say("".join(chars.taken))
            elif chars.now:
                self._say(space + chars.now)
                yield from chars.advance()
            elif not self._calls.count:
                self._say(space)

    def _say(self, text: str) -> None:
        if text:
            self._said = True
            self._emit(Said(text))
