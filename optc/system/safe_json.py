"""Reads JSON that others wrote: whatever it holds, the result can be used, and written again.

Python's ``json`` raises RecursionError on deep nesting, takes NaN and Infinity, makes an infinity
of 1e999, and lets through lone surrogates, which nothing can encode. Here all of that is one error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any

#: Files of a model or an artifact nest about ten deep; Python itself gives up at about 1000.
MAX_DEPTH = 100
#: Largest text that is read, unless the caller says otherwise: the largest tokenizers have 40 MB.
MAX_BYTES = 256 << 20

_DEEP = f"it is nested more than {MAX_DEPTH} deep"
#: An escape of a surrogate, of a pair or alone.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class JSONError(ValueError):
    """A text is no JSON, or JSON that is not safe to use. The message says why, and where in the
    text if Python says so."""


def parse_json(
    text: bytes | str,
    *,
    max_bytes: int = MAX_BYTES,
    unique_keys: bool = False,
    finite: bool = True,
) -> Any:
    """The value in a JSON text.

    Args:
        text: UTF-8 bytes, with or without a byte order mark, or text.
        max_bytes: Longest text that is read, in bytes (characters of a ``str``).
        unique_keys: Refuse an object that has a key twice; else the last one counts.
        finite: Refuse ``NaN``, ``Infinity`` and numbers such as 1e999. Off, they are floats, which
            some configurations of models need.

    Returns:
        What ``json.loads`` gives: nested at most `MAX_DEPTH` deep, every text valid Unicode.
        Integers may be larger than 64 bits.

    Raises:
        JSONError: It is not JSON, or breaks one of these rules.
    """
    if len(text) > max_bytes:
        raise JSONError(f"it has {len(text)} bytes, more than the {max_bytes} that are read")
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        value = json.loads(
            text,
            parse_constant=_no_constant if finite else None,
            parse_float=_finite if finite else None,
            object_pairs_hook=_unique if unique_keys else None,
        )
    except RecursionError as error:
        raise JSONError(_DEEP) from error
    except JSONError:
        raise
    except UnicodeDecodeError as error:
        raise JSONError(f"it is not UTF-8 at byte {error.start}: {error.reason}") from error
    except json.JSONDecodeError as error:
        raise JSONError(str(error)) from error
    except ValueError as error:
        raise JSONError("it holds an integer of more digits than are read (4300)") from error
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    if _SURROGATE.search(text) or not _encodes(text):
        _check_texts(value)
    return value


def _no_constant(name: str) -> float:
    raise JSONError(f"it holds {name}, which is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise JSONError(f"the number {digits[:40]} is too large")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JSONError(f"an object has the key {key[:80]!r} twice")
            seen.add(key)
    return made


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        below = chain.from_iterable(map(_children, level))
        level = [child for child in below if isinstance(child, (dict, list))]
        if not level:
            return
    raise JSONError(_DEEP)


def _check_texts(value: Any) -> None:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        texts = part if isinstance(part, dict) else (part,) if isinstance(part, str) else ()
        for text in texts:
            if not _encodes(text):
                raise JSONError(f"the text {text[:80]!a} holds half of a surrogate pair")
        waiting.extend(_children(part))


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
