"""Values of JSON that a schema lets one choose: of an enum, and true or false."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

#: A way to a value: keys of objects and indices of arrays.
Path = tuple[str | int, ...]
#: Most values of an enum that are looked at, the one that is taken among them.
MOST_VALUES = 16


@dataclass(frozen=True)
class Choice:
    """A value that was chosen.

    Attributes:
        path: Where it is.
        others: What else could stand there.
    """

    path: Path
    others: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The path for readers: ``legs[0].unit``."""
        parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path)
        return "".join(parts).lstrip(".")


def choices(schema: Mapping[str, Any], value: object, path: Path = ()) -> Iterator[Choice]:
    """The values within ``value`` that ``schema`` lets one choose, in order.

    Args:
        schema: A JSON schema; of what it says, ``enum``, ``type``, ``properties``, ``items`` and
            ``prefixItems`` are read.
        value: JSON that follows it.
        path: Of ``value``.
    """
    if isinstance(value, dict):
        properties = schema.get("properties")
        for key, inner in value.items():
            below = properties.get(key) if isinstance(properties, dict) else None
            if isinstance(below, dict):
                yield from choices(below, inner, (*path, key))
    elif isinstance(value, list):
        first = schema.get("prefixItems")
        for index, inner in enumerate(value):
            own = isinstance(first, list) and index < len(first)
            below = first[index] if isinstance(first, list) and own else schema.get("items")
            if isinstance(below, dict):
                yield from choices(below, inner, (*path, index))
    else:
        others = [one for one in _allowed(schema) if not _same(one, value)]
        if others:
            yield Choice(path, tuple(others[: MOST_VALUES - 1]))


def with_value(whole: object, path: Path, value: object) -> Any:
    """A copy of ``whole`` with another value at ``path``."""
    if not path:
        return value
    copy: Any = deepcopy(whole)
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


def _allowed(schema: Mapping[str, Any]) -> Sequence[Any]:
    listed = schema.get("enum")
    if isinstance(listed, list):
        return [one for one in listed if isinstance(one, str | int | float | None)]
    return (True, False) if schema.get("type") == "boolean" else ()


def _same(left: object, right: object) -> bool:
    """Equality of JSON: 1 is not true."""
    return type(left) is type(right) and left == right
