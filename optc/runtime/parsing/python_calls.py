"""Calls in Python's syntax: ``[f(x=1, s="a"), g()]``. Nothing of it is run."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from optc.runtime.parsing.characters import Characters, Reading

_KEYWORD = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)\s*(.*)", re.DOTALL | re.ASCII)
_OPENS, _CLOSES, _QUOTES = "([{", ")]}", "\"'"
#: Nested brackets of a value that is read as Python: its parser is recursive.
_DEEPEST = 50


def read_python(
    chars: Characters,
    begin: Callable[[str], None],
    add: Callable[[str], None],
    tools: Mapping[str, Mapping[str, Any]],
) -> Reading[bool]:
    """Pass a list of calls; False where it does not begin with a call of a known function.

    Args:
        chars: At the list's bracket.
        begin: Gets each function's name.
        add: Gets the JSON text of its arguments, one argument at a time.
        tools: Schemas of the arguments by the names of the functions.
    """
    called = False
    yield from chars.advance()
    while True:
        yield from chars.skip_space()
        name = (yield from chars.until("()[]{},=:\"' \n\t")).strip()
        if chars.now != "(" or name not in tools:
            return called
        yield from chars.advance()
        begin(name)
        called = True
        yield from _arguments(chars, add, list(tools[name].get("properties") or ()))
        yield from chars.skip_space()
        closes = chars.now == "]"
        if chars.now not in ("]", ","):
            return True
        yield from chars.advance()
        if closes:
            return True


def _arguments(chars: Characters, add: Callable[[str], None], places: list[str]) -> Reading[None]:
    """Pass arguments and their bracket. Those without a name have that of their place."""
    add("{")
    separator, count = "", 0
    while True:
        yield from chars.skip_space()
        text = yield from _argument(chars)
        if not chars.now:  # it was cut
            break
        if text.strip():
            found = _KEYWORD.fullmatch(text)
            key = found[1] if found else places[count] if count < len(places) else str(count)
            add(f"{separator}{json.dumps(key)}: {_json_of((found[2] if found else text).strip())}")
            separator, count = ", ", count + 1
        closes = chars.now == ")"
        yield from chars.advance()
        if closes:
            break
    add("}")


def _argument(chars: Characters) -> Reading[str]:
    """Pass an argument up to its comma, or the bracket behind all of them."""
    found: list[str] = []
    depth, quote = 0, ""
    while chars.now:
        now = chars.now
        if quote:
            if now == "\\":
                found.append(now)
                yield from chars.advance()
                now = chars.now
            elif now == quote:
                quote = ""
        elif now in _QUOTES:
            quote = now
        elif not depth and now in ",)":
            break
        else:
            depth += (now in _OPENS) - (now in _CLOSES)
        found.append(now)
        yield from chars.advance()
    return "".join(found)


def _json_of(text: str) -> str:
    """A value as JSON text: JSON, a literal of Python, or else a string."""
    for read in (json.loads, _literal):
        try:
            return json.dumps(read(text), ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    return json.dumps(text, ensure_ascii=False)


def _literal(text: str) -> Any:
    if sum(text.count(opens) for opens in _OPENS) > _DEEPEST:
        raise ValueError("too deep")
    return ast.literal_eval(text)
