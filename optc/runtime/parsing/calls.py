"""Calls of functions in the text of a message."""

from __future__ import annotations

from collections.abc import Callable, Collection

from optc.runtime.parsing.characters import Characters, Reading
from optc.runtime.parsing.deepseek import read_deepseek
from optc.runtime.parsing.formats import CallFormat
from optc.runtime.parsing.json_values import read_string, read_value
from optc.runtime.parsing.pairs import read_pairs
from optc.runtime.parsing.pieces import CallArguments, CallBegun, Piece
from optc.runtime.parsing.python_calls import read_python
from optc.runtime.parsing.tagged_parameters import read_tagged

_ARGUMENTS = ("arguments", "parameters")
#: Stand between the name of a function and its arguments, where it has no key.
_BEHIND_NAME = ("[ARGS]", "[CALL_ID]")
#: Calls without arguments.
_EMPTY = "{}"


class CallReader:
    """Finds calls, and gives their arguments as they come.

    Args:
        chars: The text.
        emit: Gets the pieces.
        tools: Schemas of the arguments by the names of the functions.
        most: Calls that count, the first ones; None are all.
    """

    def __init__(
        self,
        chars: Characters,
        emit: Callable[[Piece], None],
        tools: dict[str, dict[str, object]],
        most: int | None = None,
    ) -> None:
        self._chars = chars
        self._emit = emit
        self._tools = tools
        self._most = most
        self.count = 0

    def read(self, format: CallFormat) -> Reading[bool]:
        """Pass what stands behind the beginning of calls, and their end; False where it is no
        call.

        Args:
            format: Of the calls.
        """
        chars = self._chars
        yield from chars.skip_space()
        called = yield from self._marked(format)
        if called and format.ends:
            space = yield from chars.skip_space()
            if not (yield from chars.match(format.ends)) and space:
                chars.unread(space)
        return called

    def bare(self, format: CallFormat, names: Collection[str]) -> Reading[bool]:
        """Pass calls that nothing begins; False where they are none.

        Args:
            format: Of the calls.
            names: Of functions that count.
        """
        if format.style == "python":
            return (yield from read_python(self._chars, self._begin, self._add, self._tools))
        return (yield from self._objects(format.separator, names))

    def _marked(self, format: CallFormat) -> Reading[bool]:
        chars = self._chars
        if format.style == "deepseek":
            return (yield from read_deepseek(chars, self._begin, self._add))
        if format.style == "python" and chars.now == "[":
            return (yield from read_python(chars, self._begin, self._add, self._tools))
        if chars.now == "[":
            return (yield from self._list())
        if chars.now == "{":
            return (yield from self._objects(format.separator))
        if format.style == "pairs":
            return (yield from read_pairs(chars, self._begin, self._add, self._tools))
        if chars.now == "<":
            return (yield from read_tagged(chars, self._begin, self._add, self._tools))
        return (yield from self._named())

    def _objects(self, separator: str, names: Collection[str] | None = None) -> Reading[bool]:
        """Pass objects that are calls, with separators between them; False where the first is none.

        Args:
            separator: Between two, but for blanks.
            names: Of functions that count; None are all.
        """
        called = yield from self._object(names)
        mark = separator.strip()
        while called and mark:
            space = yield from self._chars.skip_space()
            if self._chars.now != mark:
                if space:
                    self._chars.unread(space)
                break
            yield from self._chars.advance()
            yield from self._chars.skip_space()
            if self._chars.now != "{" or not (yield from self._object(names)):
                break
        return called

    def _list(self) -> Reading[bool]:
        chars, called = self._chars, False
        yield from chars.advance()
        while True:
            yield from chars.skip_space()
            if chars.now != "{" or not (yield from self._object(None)):
                return called
            called = True
            yield from chars.skip_space()
            closes = chars.now == "]"
            if chars.now not in (",", "]"):
                return called
            yield from chars.advance()
            if closes:
                return called

    def _object(self, names: Collection[str] | None) -> Reading[bool]:
        """Pass an object; True if it begins a call, whatever becomes of it."""
        chars, name, begun = self._chars, "", False
        held: list[str] = []
        yield from chars.advance()
        yield from chars.skip_space()
        while chars.now and chars.now != "}":
            key = yield from read_string(chars)
            yield from chars.skip_space()
            if key is None or chars.now != ":":
                return begun
            yield from chars.advance()
            yield from chars.skip_space()
            if key == "name" and not begun:
                name = (yield from read_string(chars)) or ""
                if not name or (names is not None and name not in names):
                    return False
            elif key in _ARGUMENTS and name and not begun and not held:
                begun = True
                self._begin(name)
                yield from read_value(chars, self._add)
            elif key in _ARGUMENTS and not begun and not held:
                yield from read_value(chars, held.append)
            else:
                yield from read_value(chars, _drop)
            yield from chars.skip_space()
            if chars.now != ",":
                break
            yield from chars.advance()
            yield from chars.skip_space()
        if chars.now != "}":
            return begun
        if name and not begun:
            begun = True
            self._begin(name)
            self._add("".join(held) or _EMPTY)
        yield from chars.advance()
        return begun

    def _named(self) -> Reading[bool]:
        """Pass a function's name and its arguments."""
        chars = self._chars
        name = (yield from chars.until("[{ \n\t")).strip()
        if not name:
            return False
        while found := (yield from chars.match(_BEHIND_NAME)):
            if found == "[CALL_ID]":
                yield from chars.until("[{")
        yield from chars.skip_space()
        if chars.now != "{":
            return False
        self._begin(name)
        yield from read_value(chars, self._add)
        return True

    def _begin(self, name: str) -> None:
        self.count += 1
        if self._most is None or self.count <= self._most:
            self._emit(CallBegun(self.count - 1, name))

    def _add(self, text: str) -> None:
        if self._most is None or self.count <= self._most:
            self._emit(CallArguments(self.count - 1, text))


def _drop(text: str) -> None:
    """Skips text that changes nothing."""
