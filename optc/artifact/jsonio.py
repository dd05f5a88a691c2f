"""Canonical JSON, and reading of an artifact's JSON, with errors that name file and key."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from optc.errors import ArtifactError
from optc.foreign.file import read_file
from optc.foreign.typed_json import MAX_COUNT, MAX_INT
from optc.safe_json import JSONError, parse_json

T = TypeVar("T")

#: What to do about symbolic links.
LINKS = "copy the artifact with what its links lead to (cp -rL)"
_NEWER = "the artifact is of a newer optc, or damaged"
#: No text of an artifact's JSON that anything is called by is longer.
_SHOWN = 80


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


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file, which must be a regular one.

    Raises:
        ArtifactError: Unreadable, not a JSON object, or JSON that is not safe to use
            (`optc.safe_json`), such as an object that has a key twice.
    """
    where = str(path)
    try:
        text = read_file(path, follow=False)
    except OSError as error:
        linked = error.errno == errno.ELOOP  # what O_NOFOLLOW makes of a symbolic link
        problem = "is a symbolic link" if linked else f"cannot be read: {error.strerror}"
        raise ArtifactError(problem, where=where, hint=LINKS if linked else "") from error
    try:
        value = parse_json(text, unique_keys=True)
    except JSONError as error:
        raise ArtifactError(
            f"is not JSON that can be used: {error}",
            where=where,
            hint="copy the artifact again or compile the model again",
        ) from error
    if not isinstance(value, dict):
        raise ArtifactError("is not a JSON object", where=where)
    return value


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
        return ArtifactError(message, where=self._where, hint=_NEWER)

    def require(self, *keys: str) -> None:
        """Refuse an object without one of these keys."""
        for key in keys:
            if key not in self.values:
                raise ArtifactError(f"the key {key!r} is missing", where=self._where)

    def get(self, key: str, kind: type[T]) -> T:
        """The value of ``key``, which must be of ``kind``."""
        self.require(key)
        value = self.values[key]
        if not _is(value, kind):
            raise ArtifactError(
                f"the key {key!r} is not {kind.__name__} but {type(value).__name__}",
                where=self._where,
            )
        if isinstance(value, int) and not -MAX_INT <= value <= MAX_INT:
            raise self.error(f"the key {key!r} is an integer of more than 64 bits")
        made: T = value
        return made

    def count(self, key: str, least: int = 0, most: int = MAX_COUNT) -> int:
        """The integer under ``key``, which must lie in ``least`` to ``most``."""
        value = self.get(key, int)
        if not least <= value <= most:
            raise self.error(f"the key {key!r} is {value}, not within {least} to {most}")
        return value

    def counts(self, key: str, least: int = 0, most: int = MAX_COUNT) -> tuple[int, ...]:
        """The list under ``key`` of integers within ``least`` to ``most``."""
        values = self.each(key, int)
        for value in values:
            if not least <= value <= most:
                raise self.error(f"the key {key!r} holds {value}, not within {least} to {most}")
        return values

    def texts(self, key: str) -> dict[str, str]:
        """The object under ``key``, whose values must be texts."""
        child = self.child(key)
        return {name: child.get(name, str) for name in child.values}

    def optional(self, key: str, kind: type[T]) -> T | None:
        """The value of ``key``, or None where it is null."""
        return None if self.values.get(key) is None else self.get(key, kind)

    def number(self, key: str) -> float | None:
        """The finite number under ``key``, or None where it is null."""
        if isinstance(self.values.get(key), int):
            return self.get(key, int)
        value = self.optional(key, float)
        if value is not None and not math.isfinite(value):
            raise self.error(f"the key {key!r} is {value}")
        return value

    def each(self, key: str, kind: type[T]) -> tuple[T, ...]:
        """The list under ``key``, whose elements must be of ``kind``."""
        values = self.get(key, list)
        for value in values:
            if not _is(value, kind):
                raise ArtifactError(
                    f"the key {key!r} holds {type(value).__name__}, not {kind.__name__}",
                    where=self._where,
                )
        return tuple(values)

    def choice(self, key: str, known: Iterable[str]) -> str:
        """The text under ``key``, which must be one of ``known``."""
        value, names = self.get(key, str), list(known)
        if value not in names:
            shown = value[:_SHOWN]
            raise self.error(f"the key {key!r} is {shown!r}, none of {', '.join(names)}")
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


def _is(value: object, kind: type) -> bool:
    """Whether a value is of a kind; True is an int to isinstance, but no byte count."""
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
