"""Values of pass options: typed as YAML gives them, or texts as the command line does."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

#: Most characters of a value that a message shows: aliases of YAML make gigabytes of a few words.
_SHOWN = 80
_BOOLEANS = {"true": True, "false": False}


def read_value(kind: Any, value: object) -> object:
    """``value`` as an option of type ``kind``: bool, int, float, str, a tuple of one of them
    (``tuple[int, ...]``), or one of these or None.

    Args:
        kind: The type.
        value: Of that type already (lists are tuples, integers floats), or a text of it: ``true``,
            ``none``, items between commas in brackets or not.

    Raises:
        KeyError, ValueError: It is neither.
    """
    if get_origin(kind) in (Union, UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is tuple:
        return tuple(read_value(get_args(kind)[0], item) for item in _items(value))
    if isinstance(value, str) and kind is not str:
        return _BOOLEANS[value.lower()] if kind is bool else kind(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(value)
    if isinstance(value, str):
        value.encode()  # half of a surrogate pair is no text: a UnicodeEncodeError
    return value


def value_text(value: object) -> str:
    """The value as text that `read_value` reads."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{','.join(map(value_text, value))}]"
    return str(value)


def kind_text(kind: Any) -> str:
    """The type for messages: ``int``, ``list of int``, ``int or none``."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(kind_text(one) for one in get_args(kind))
    if get_origin(kind) is tuple:
        return f"list of {kind_text(get_args(kind)[0])}"
    return "none" if kind is NoneType else str(kind.__name__)


def shortened(value: object) -> str:
    """A value as a message shows it, in bounded time and length."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother = 2, _SHOWN, _SHOWN
    try:
        return short.repr(value)[:_SHOWN]
    except ValueError:  # an integer of more digits than Python prints
        return f"a value of type {type(value).__name__}"


def _items(value: object) -> Sequence[object]:
    if isinstance(value, str):
        inside = value.removeprefix("[").removesuffix("]")
        return [item.strip() for item in inside.split(",")] if inside.strip() else []
    if isinstance(value, list | tuple):
        return value
    raise ValueError(value)
