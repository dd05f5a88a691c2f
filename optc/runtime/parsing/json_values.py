"""JSON values in a text that comes in parts: their own characters, as they come."""

from __future__ import annotations

import json
from collections.abc import Callable

from optc.runtime.parsing.characters import Characters, Reading

_OPENS, _CLOSES = "{[", "}]"


def read_value(chars: Characters, take: Callable[[str], None]) -> Reading[None]:
    """Pass one value, as far as it goes.

    Args:
        chars: At its first character.
        take: Gets each of its characters.
    """
    if chars.now == '"':
        yield from _string(chars, take)
    elif chars.now and chars.now in _OPENS:
        yield from _container(chars, take)
    else:
        while chars.now and chars.now not in ",]}" and not chars.now.isspace():
            take(chars.now)
            yield from chars.advance()


def read_string(chars: Characters) -> Reading[str | None]:
    """Pass a string; gives what it says, or None where it is none or has no end."""
    if chars.now != '"':
        return None
    found: list[str] = []
    yield from _string(chars, found.append)
    try:
        value = json.loads("".join(found))
    except ValueError:
        return None
    return str(value)


def _container(chars: Characters, take: Callable[[str], None]) -> Reading[None]:
    depth = 0
    while chars.now:
        if chars.now == '"':
            yield from _string(chars, take)
            continue
        depth += (chars.now in _OPENS) - (chars.now in _CLOSES)
        take(chars.now)
        yield from chars.advance()
        if depth == 0:
            return


def _string(chars: Characters, take: Callable[[str], None]) -> Reading[None]:
    take(chars.now)
    yield from chars.advance()
    while chars.now:
        closes, escapes = chars.now == '"', chars.now == "\\"
        take(chars.now)
        yield from chars.advance()
        if closes:
            return
        if escapes and chars.now:
            take(chars.now)
            yield from chars.advance()
