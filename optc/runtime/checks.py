"""Checks of what a request asks for: each failure is one `RequestError` of bounded length."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from itertools import islice
from numbers import Integral, Real
from typing import TypeVar, cast

from optc.errors import RequestError

#: A text, or a pair of them.
T = TypeVar("T")
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2  # its own 6 show 6**6 elements


def check_int(name: str, value: object, low: int, high: int | None, note: str = "") -> None:
    """Refuse what is no integer from ``low`` to ``high`` (None: any); ``note`` ends the hint."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise invalid(name, value, f"an integer{note}")
    number = int(value)
    if number < low or (high is not None and number > high):
        span = f"from {low} to {high}" if high is not None else f"at least {low}"
        raise invalid(name, value, span + note)


def check_number(name: str, value: object) -> None:
    """Refuse what is no real number, or one that no float holds."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise invalid(name, value, "a number")
    try:
        float(value)
    except OverflowError as error:
        raise invalid(name, value, "a number that a float holds") from error


def as_tuple(name: str, value: object, most: int) -> tuple[object, ...]:
    """A copy of a list of at most ``most`` elements."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise invalid(name, value, "a list")
    try:
        iterator = iter(value)
    except TypeError as error:  # arrays of no dimension call themselves iterable
        raise invalid(name, value, "a list") from error
    elements = tuple(islice(iterator, most + 1))  # it may have no end
    if len(elements) > most:
        raise invalid(name, value, f"a list of {most} at most")
    return elements


def invalid(name: str, value: object, allowed: str) -> RequestError:
    """The error about a value that is not ``allowed``."""
    return RequestError(
        f"{name}={shown(value)} is not allowed",
        where="sampling parameters",
        hint=f"must be {allowed}",
    )


def shown(value: object) -> str:
    """A value as a message may show it."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python writes no integers of thousands of digits
        return "(a number of thousands of digits)"


def encodes(text: str) -> bool:
    """True if a text is valid Unicode; Python's may hold lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_texts(texts: Iterable[T]) -> list[T]:
    """Texts, or pairs of them, as a list.

    Raises:
        RequestError: They are none, or one is not valid Unicode, which tokenizers read nothing of.
    """
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Iterable):
        raise RequestError("texts are no list of texts", where="texts")
    found = list(texts)
    if not all(map(_is_text, found)):
        raise RequestError("texts are no list of texts", where="texts")
    for index, one in enumerate(found):
        if not all(map(encodes, (one,) if isinstance(one, str) else cast(Iterable[str], one))):
            raise RequestError(
                "it is not valid Unicode: surrogates not allowed",
                where=f"text {index}",
                hint="decode it with errors='replace'",
            )
    return found


def _is_text(one: object) -> bool:
    if isinstance(one, tuple | list):
        return len(one) == 2 and all(isinstance(part, str) for part in one)
    return isinstance(one, str)
