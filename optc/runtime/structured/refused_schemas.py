"""Parts of JSON schemas that llguidance takes, and whose texts it then cannot end or gets wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from optc.errors import RequestError

#: Whether a Lark grammar has no text.
Empty = Callable[[str], bool]
#: Keys whose values are no schemas.
_VALUES = frozenset({"const", "default", "enum", "examples"})


def check_objects(schema: object, is_empty: Empty) -> None:
    """Refuse objects that no text may be able to end, and those with too few keys.

    Args:
        schema: Parsed.
        is_empty: For patterns.

    Raises:
        RequestError: A pattern of keys matches named properties alone, or more keys are called for
            than are named: one may be written twice.
    """
    for pointer, part in _objects(schema, ""):
        where = f"json_schema{pointer and ', at '}{pointer}"
        problem = _dead_pattern(part, is_empty) or _too_few_keys(part)
        if problem:
            raise RequestError(problem, where=where, hint="name the keys in 'properties'")


def _dead_pattern(part: dict[str, Any], is_empty: Empty) -> str:
    """After a comma, a key must follow: there is none if all that match are named ones."""
    named, patterns = part.get("properties"), part.get("patternProperties")
    if part.get("additionalProperties") is not False or not named or not patterns:
        return ""
    names = "|".join(map(re.escape, named))
    for pattern in patterns:
        lark = f"start: KEY\nKEY: {_literal(_whole(pattern))} & ~{_literal(names)}\n"
        if is_empty(lark):
            return f"the keys that match {pattern!r} are properties"
    return ""


def _too_few_keys(part: dict[str, Any]) -> str:
    least, named = part.get("minProperties"), part.get("properties")
    required = part.get("required")
    held = len(set(named) & set(required)) if named and isinstance(required, list) else 0
    if isinstance(least, int) and least - held > 1:
        return f"minProperties={least} with {held} required properties: keys may be written twice"
    return ""


def _whole(pattern: str) -> str:
    """A pattern that is searched for, as one of whole texts."""
    begin = "" if pattern.startswith("^") else "(?s:.)*"
    end = "" if pattern.endswith("$") and not pattern.endswith("\\$") else "(?s:.)*"
    return f"{begin}({pattern.removeprefix('^')[: -1 if not end else None]}){end}"


def _literal(pattern: str) -> str:
    return "/" + re.sub(r"(?<!\\)/", r"\\/", pattern) + "/"


def _objects(schema: object, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All schemas of objects with their JSON pointers (RFC 6901)."""
    if isinstance(schema, dict):
        yield pointer, schema
        items: Any = ((key, one) for key, one in schema.items() if key not in _VALUES)
    else:
        items = enumerate(schema) if isinstance(schema, list) else ()
    for key, one in items:
        yield from _objects(one, f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}")
