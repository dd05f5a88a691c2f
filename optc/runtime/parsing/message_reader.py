"""`MessageReader`: what a message says, thinks and calls, in the format of a model's template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.runtime.parsing.calls import CallReader
from optc.runtime.parsing.characters import Reading
from optc.runtime.parsing.fed import FedReader
from optc.runtime.parsing.formats import CallFormat, ThoughtFormat
from optc.runtime.parsing.pieces import Said, Thought


class MessageReader(FedReader):
    """Reads one message.

    Blanks between thoughts, calls and what is said belong to none of them. What begins like a call
    and is none is said, but where the text was cut.

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
        super().__init__()
        self._format = calls
        self._thoughts = thoughts
        self._names = frozenset(tools)
        self._calls = CallReader(self._chars, self._pieces.add, dict(tools), most_calls)
        self._said = False
        self._start(self._message(in_thought))

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
                self._pieces.add(Thought(space + chars.now))
                yield from chars.advance()

    def _text(self) -> Reading[None]:
        chars, calls = self._chars, self._format
        begins = calls.begins if calls is not None else ()
        while chars.now:
            chars.mark()
            space = yield from chars.skip_space()
            if (
                calls is not None
                and chars.now
                and chars.now == calls.opens
                and not self._said
                and not self._calls.count
            ):
                if not (yield from self._calls.bare(calls, self._names)):
                    self._say("".join(chars.taken))
            elif begins and (yield from chars.match(begins)):
                assert calls is not None
                called = yield from self._calls.read(calls)
                if not called and not chars.at_cut:
                    self._say("".join(chars.taken))
            elif chars.now:
                self._say(space + chars.now)
                yield from chars.advance()
            elif not self._calls.count:
                self._say(space)

    def _say(self, text: str) -> None:
        if text:
            self._said = True
            self._pieces.add(Said(text))
