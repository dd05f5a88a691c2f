"""`Characters`: a text that comes in parts, read one character after the other.

Who reads is a generator: it waits in a ``yield`` where the text that is there ends, and goes on
with what comes later. So it cannot see where the text was cut.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import TypeVar

T = TypeVar("T")
#: Reads characters, and gives a value at its end.
Reading = Generator[None, str, T]


class Characters:
    """A cursor on a text of which more may come.

    Attributes:
        now: The character at the cursor; empty at the end of the text.
        taken: Characters that the cursor has passed since `mark`.
        cut: The text ended before who wrote it did; said before it ends.
    """

    def __init__(self) -> None:
        self.now = ""
        self._back: list[str] = []  # read ahead, the next one last
        self._ended = False
        self.taken: list[str] = []
        self.cut = False

    def mark(self) -> None:
        """Begin to note what is passed."""
        self.taken.clear()

    def advance(self) -> Reading[None]:
        """Go to the next character."""
        self.taken.append(self.now)
        yield from self.fetch()

    def fetch(self) -> Reading[None]:
        """Get the first character."""
        if self._back:
            self.now = self._back.pop()
        elif self._ended:
            self.now = ""
        else:
            self.now = yield
            self._ended = not self.now

    def skip_space(self) -> Reading[str]:
        """Pass blanks and line ends; gives them."""
        found = []
        while self.now.isspace():
            found.append(self.now)
            yield from self.advance()
        return "".join(found)

    def match(self, texts: Collection[str]) -> Reading[str]:
        """Pass one of some texts, none of which begins another; gives it, or nothing where none
        is there. One within which the text was cut is passed, too: nobody wants half a mark."""
        seen = ""
        while self.now and any(text.startswith(seen + self.now) for text in texts):
            seen += self.now
            if seen in texts:
                self.taken.extend(seen[:-1])
                yield from self.advance()
                return seen
            yield from self.fetch()
        if seen and not self.at_cut:
            self._put_back(seen)
        return ""

    @property
    def at_cut(self) -> bool:
        """The cursor is where the text was cut."""
        return self.cut and not self.now

    def until(self, stops: str) -> Reading[str]:
        """Pass what stands before one of some characters, or before the end."""
        found = []
        while self.now and self.now not in stops:
            found.append(self.now)
            yield from self.advance()
        return "".join(found)

    def unread(self, text: str) -> None:
        """Go back to the beginning of a text that was just passed."""
        del self.taken[-len(text) :]
        self._put_back(text)

    def _put_back(self, seen: str) -> None:
        if self.now:
            self._back.append(self.now)
        self._back.extend(reversed(seen[1:]))
        self.now = seen[0]
