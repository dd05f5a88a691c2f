"""The complaints of llguidance about a structure, as one error that says where."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from optc.errors import RequestError
from optc.runtime.structured.structure import Structure

#: Validates a JSON schema; returns what is wrong, or nothing.
Validate = Callable[[str], str]

#: Parts of a schema that are looked at to find the one that is wrong.
_MOST_PARTS = 500
_CARET = re.compile(r"regex parse error:\n    (.*)\n    ( *)\^.*\nerror: (.*)")
_LARK = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*)")
#: How llguidance reports an assertion of its own that failed.
_PANIC = "panic: "
#: What that is for users.
NO_TEXT = "it allows no text from here"
#: How llguidance says that no token can come next.
_DEAD_END = re.compile(r"NoExtension(Bias)?\b")


def complaint(structure: Structure, message: str, validate: Validate) -> RequestError:
    """The error for a structure that is wrong.

    Args:
        structure: What the caller gave.
        message: llguidance's.
        validate: For parts of a schema.
    """
    if structure.kind == "json_schema":
        return _about_schema(structure.text, message, validate)
    if structure.kind == "regex":
        return _about_regex(structure.text, message)
    found = _LARK.match(message)
    if found is None:
        return RequestError(reason(message), where=structure.kind)
    line, column, _ = found.groups()
    where = f"{structure.kind}, line {line}, column {column}"
    return RequestError(reason(message[found.start(3) :]), where=where)


def reason(message: str) -> str:
    """A message in one line, without the dump of internals that may follow."""
    caret = _CARET.search(message)
    if caret:
        return caret[3]
    first = message.strip().partition("\n")[0]
    if first.startswith(_PANIC):  # of a size that its tables do not hold
        return "too large to compile"
    return NO_TEXT if _DEAD_END.match(first) else first


def _about_regex(regex: str, message: str) -> RequestError:
    caret = _CARET.search(message)
    if caret is None:
        # at 1(8): invalid regex "…" (in regex): what is wrong
        return RequestError(reason(message.rpartition("(in regex): ")[2]), where="regex")
    shown, indent, text = caret.groups()
    return RequestError(text, where=f"regex, character {_position(regex, shown, len(indent))}")


def _position(regex: str, shown: str, column: int) -> int:
    """Index in ``regex`` of a column of how llguidance shows it: line breaks and slashes are
    escaped there."""
    at = index = 0
    while at < column and index < len(regex):
        at += 1 if shown[at] == regex[index] else 2
        index += 1
    return index


def _about_schema(text: str, message: str, validate: Validate) -> RequestError:
    schema: dict[str, Any] = json.loads(text)
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    where = ""
    for parts, (pointer, part) in enumerate(_parts(schema, "")):
        if parts == _MOST_PARTS:
            break
        # The deepest part that is wrong in the same way; parents come before their parts.
        inside = pointer.startswith(f"{where}/")
        if inside and validate(json.dumps({**shared, **part})) == message:
            where = pointer
    return RequestError(reason(message), where=f"json_schema{where and ', at '}{where}")


def _parts(node: object, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects in a schema with their JSON pointers (RFC 6901)."""
    items: Iterator[tuple[object, object]] = iter(())
    if isinstance(node, dict):
        yield pointer, node
        items = iter(node.items())
    elif isinstance(node, list):
        items = iter(enumerate(node))
    for key, value in items:
        escaped = str(key).replace("~", "~0").replace("/", "~1")
        yield from _parts(value, f"{pointer}/{escaped}")
