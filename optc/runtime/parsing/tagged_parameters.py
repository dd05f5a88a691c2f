"""Calls whose parameters stand between tags: ``<function=f><parameter=x>1</parameter></function>``.

A parameter is text; the function's schema says whether it stands for a string or for other JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from optc.runtime.parsing.characters import Characters, Reading

_FUNCTION, _PARAMETER = "<function=", "<parameter="
_END_OF_FUNCTION, _END_OF_PARAMETER = "</function>", "</parameter>"


def read_tagged(
    chars: Characters,
    begin: Callable[[str], None],
    add: Callable[[str], None],
    tools: Mapping[str, Mapping[str, object]],
) -> Reading[bool]:
    """Pass one call; False where there is none.

    Args:
        chars: At its first tag.
        begin: Gets the function's name.
        add: Gets the JSON text of its arguments, bit by bit.
        tools: Schemas of the arguments by the names of the functions.
    """
    if not (yield from chars.match((_FUNCTION,))):
        return False
    name = (yield from chars.until(">\n<")).strip()
    if not name or chars.now != ">":
        return False
    yield from chars.advance()
    begin(name)
    add("{")
    separator = ""
    while True:
        yield from chars.skip_space()
        tag = yield from chars.match((_PARAMETER, _END_OF_FUNCTION))
        if tag != _PARAMETER:
            break
        key = (yield from chars.until(">\n")).strip()
        yield from chars.advance()
        text = yield from text_until(chars, _END_OF_PARAMETER)
        add(f"{separator}{json.dumps(key)}: {json_of(text, tools.get(name, {}), key)}")
        separator = ", "
    add("}")
    return True


def text_until(chars: Characters, end: str) -> Reading[str]:
    """Pass a parameter's text and its end; a line end on either side belongs to the tags."""
    found = []
    while chars.now and not (yield from chars.match((end,))):
        found.append(chars.now)
        yield from chars.advance()
    return "".join(found).removeprefix("\n").removesuffix("\n")


def json_of(text: str, schema: Mapping[str, Any], key: str) -> str:
    """A parameter as JSON text: a string where the schema says so, or where it is nothing else."""
    properties = schema.get("properties")
    known = properties.get(key) if isinstance(properties, Mapping) else None
    kind = known.get("type") if isinstance(known, Mapping) else None
    if kind != "string":
        try:
            return json.dumps(json.loads(text), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass  # it is text, then
    return json.dumps(text, ensure_ascii=False)
