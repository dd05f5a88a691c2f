"""The values for a chat template: plain copies of a caller's, marked where they hold control texts.

A conversation's contents must not begin or end a turn. So before a template sees them, the first
character of each control text in them is replaced with a character that nobody uses; lengths and
everything else stay. Where the rendered text has such a character, a control text is content;
everywhere else the template itself has written it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate

from optc.errors import RequestError, RequestTypeError
from optc.runtime.checks import encodes, shown

#: First of the characters that may stand for others, all of the private use areas.
_FIRST_MARK, _LAST_MARK = 0xF0000, 0xFFFFD


def plain_values(value: object, where: str) -> object:
    """A copy of nested lists and mappings, as of JSON.

    Raises:
        RequestTypeError: Something of it is no text, number, list or mapping.
        RequestError: A text is not valid Unicode, or it is nested too deeply.
    """
    try:
        return _plain(value, where)
    except RecursionError as error:
        raise RequestError("nested too deeply", where=where) from error


def _plain(value: object, where: str) -> object:
    if isinstance(value, str):
        if not encodes(value):
            raise RequestError("not valid Unicode: surrogates not allowed", where=where)
        return str.__str__(value)  # of a subclass too
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return {_plain(key, where): _plain(one, where) for key, one in list(value.items())}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(one, where) for one in list(value)]
    raise RequestTypeError(
        f"{shown(value)} is not allowed",
        where=where,
        hint="they are made of texts, numbers, lists and mappings, as JSON is",
    )


class Marks:
    """Characters that stand for the first ones of control texts.

    Args:
        texts: The control texts.
        values: Plain values whose texts are to be marked.

    Attributes:
        values: A copy with the marks.
        restored: What each mark stands for; empty if nothing had to be marked.
    """

    def __init__(self, texts: Collection[str], values: object) -> None:
        self._texts = texts
        self._beginnings = {beginning for text in texts for beginning in accumulate(text)}
        self._lengths = {len(beginning) for beginning in self._beginnings}
        used: set[str] = set().union(*_texts(values))  # their characters
        private = map(chr, range(_FIRST_MARK, _LAST_MARK + 1))
        unused = (character for character in private if character not in used)
        firsts = sorted({text[0] for text in texts})
        self._marks = dict(zip(firsts, unused, strict=False))
        if len(self._marks) < len(firsts):
            raise RequestError("all characters for private use are in use", where="messages")
        self.restored: dict[str, str] = {}
        self.values = self._mark(values)

    def _mark(self, value: object) -> object:
        if isinstance(value, str):
            return self._mark_text(value)
        if isinstance(value, dict):
            return {self._mark(key): self._mark(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._mark(one) for one in value]
        return value

    def _mark_text(self, text: str) -> str:
        places = {at for control in self._texts for at in _occurrences(control, text)}
        # The end of a text may be the beginning of a control text that what follows completes.
        ends = {text[-length:] for length in self._lengths} & self._beginnings
        places |= {len(text) - len(end) for end in ends}
        if not places:
            return text
        characters = list(text)
        for at in places:
            mark = self._marks[text[at]]
            self.restored[mark] = text[at]
            characters[at] = mark
        return "".join(characters)


def unmarked(text: str, restored: Mapping[str, str]) -> str:
    """A text without marks, of which ``restored`` says what they stand for."""
    return text.translate({ord(mark): character for mark, character in restored.items()})


def _occurrences(control: str, text: str) -> Iterator[int]:
    at = text.find(control)
    while at >= 0:
        yield at
        at = text.find(control, at + 1)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(key)
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
