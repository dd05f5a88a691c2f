"""Canonical JSON and typed reading of JSON objects, with errors that name the key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from optc.errors import ArtifactError

T = TypeVar("T")


def canonical_json(value: object) -> bytes:
    """One byte string per value: sorted keys, no spaces, UTF-8; NaN and infinities are refused."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def pretty_json(value: object) -> bytes:
    """JSON as written to disk: sorted keys, two spaces, a final newline."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


class Fields:
    """A JSON object read key by key; a missing key or another type is an `ArtifactError`.

    Args:
        value: The object.
        where: The file, and the path inside of it, for messages.

    Attributes:
        values: The object itself.
    """

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise ArtifactError(f"is not a JSON object but {type(value).__name__}", where=where)
        self.values: Mapping[str, Any] = value
        self._where = where

    def error(self, message: str) -> ArtifactError:
        """An error about this object, to be raised."""
        return ArtifactError(
            message, where=self._where, hint="the artifact is of a newer optc, or damaged"
        )

    def get(self, key: str, kind: type[T]) -> T:
        """The value of ``key``, which must be of ``kind``."""
        if key not in self.values:
            raise ArtifactError(f"the key {key!r} is missing", where=self._where)
        value = self.values[key]
        # bool is an int to isinstance, but 'true' is no byte count.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ArtifactError(
                f"the key {key!r} is not {kind.__name__} but {type(value).__name__}",
                where=self._where,
            )
        return value

    def optional(self, key: str, kind: type[T]) -> T | None:
        """The value of ``key``, or None where it is null."""
        return None if self.values.get(key) is None else self.get(key, kind)

    def number(self, key: str) -> float | None:
        """The number under ``key``, or None where it is null."""
        if isinstance(self.values.get(key), int):
            return self.get(key, int)
        return self.optional(key, float)

    def each(self, key: str, kind: type[T]) -> tuple[T, ...]:
        """The list under ``key``, whose elements must be of ``kind``."""
        values = self.get(key, list)
        for value in values:
            if not isinstance(value, kind):
                raise ArtifactError(
                    f"the key {key!r} holds {type(value).__name__}, not {kind.__name__}",
                    where=self._where,
                )
        return tuple(values)

    def choice(self, key: str, known: Iterable[str]) -> str:
        """The text under ``key``, which must be one of ``known``."""
        value, names = self.get(key, str), list(known)
        if value not in names:
            raise self.error(f"the key {key!r} is {value!r}, none of {', '.join(names)}")
        return value

    def child(self, key: str) -> Fields:
        """The object under ``key``."""
        return Fields(self.get(key, dict), f"{self._where}: {key}")

    def children(self, key: str) -> list[Fields]:
        """The list of objects under ``key``."""
        return [
            Fields(value, f"{self._where}: {key}[{index}]")
            for index, value in enumerate(self.get(key, list))
        ]
