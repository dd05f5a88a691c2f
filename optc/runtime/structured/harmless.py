"""Structures that surely compile in little time and memory, so that no trial is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from optc.runtime.structured.structure import Structure

#: Longer texts are tried first, whatever they say.
_SHORT = 4096
#: Repetitions of repetitions that are compiled at once.
_REPEATED = 10_000
_COUNTS = re.compile(r"\{(\d*),?(\d*)\}")
#: What a Lark grammar may hold that takes more than its length: intersections, complements, other
#: grammars, and a schema.
_COSTLY = re.compile(r"[&~]|%(?!ignore\b)")
#: Keywords of JSON Schema that cost what their text does. Their values are schemas, names of
#: schemas, lists of schemas, or neither.
_ONE = frozenset({"items", "additionalProperties"})
_NAMED = frozenset({"properties", "$defs", "definitions"})
_SEVERAL = frozenset({"anyOf", "prefixItems"})
_PLAIN = frozenset(
    {"type", "required", "enum", "const", "title", "description", "default", "$ref", "$schema"}
)


def is_harmless(structure: Structure) -> bool:
    """True only where time and memory of a compile are bounded by the length of the text."""
    if structure.kind == "choice":
        return True
    if len(structure.text) > _SHORT:
        return False
    if structure.kind == "json_schema":
        return all(map(_is_plain, _schemas(json.loads(structure.text))))
    if structure.kind == "grammar" and _COSTLY.search(structure.text):
        return False
    return _repeated(structure.text) <= _REPEATED


def _repeated(text: str) -> int:
    """The product of all counts of repetitions: an upper bound where some lie in others."""
    product = 1
    for counts in _COUNTS.finditer(text):
        digits = max(counts.groups(), key=len)
        if len(digits) > len(str(_REPEATED)):
            return _REPEATED + 1
        product *= max(1, *(int(count or 0) for count in counts.groups()))
    return product


def _schemas(schema: object) -> Iterator[object]:
    """A schema and all that is inside the keywords that are known."""
    yield schema
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        inside: list[object] = []
        if key in _ONE:
            inside = [value]
        elif key in _NAMED and isinstance(value, dict):
            inside = list(value.values())
        elif key in _SEVERAL and isinstance(value, list):
            inside = value
        for one in inside:
            yield from _schemas(one)


def _is_plain(schema: object) -> bool:
    if isinstance(schema, dict):
        return all(key in _ONE | _NAMED | _SEVERAL | _PLAIN for key in schema)
    return isinstance(schema, bool)
