"""Typed values of JSON that others wrote: msgspec checks types, ranges and keys in one call.

A type is a `msgspec.Struct` or a dataclass whose fields are annotated, with the ranges below where
a number has one. What no annotation says is checked in ``__post_init__``, which raises ValueError.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from optc.errors import ArtifactError

T = TypeVar("T")

#: Largest number of rows, tokens, blocks and the like: engines count them in int32.
MAX_COUNT = 2**31 - 1
#: Largest integer of an artifact's JSON: file sizes and offsets are int64.
MAX_INT = 2**63 - 1

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
#: Bytes, or an offset in a file.
Size = Annotated[int, Meta(ge=0, le=MAX_INT)]
Integer = Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)]
Share = Annotated[float, Meta(ge=0, le=1)]
#: sha256 in hex.
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]

#: Characters of a problem that are shown: msgspec repeats values and keys, however long they are.
_SHOWN = 200
_MESSAGE = re.compile(r"(.*) - at (`key` in )?`\$([^`]*)`", re.DOTALL)
_PATTERN = re.compile(r"`str` matching regex '\\\\A(.*)\\\\Z'")


def exactly(*texts: str) -> Meta:
    """One of these texts."""
    return Meta(pattern=rf"\A({'|'.join(map(re.escape, texts))})\Z")


#: What to do about values that no compile of this optc writes.
NEWER = "the artifact is of a newer optc, or damaged: copy it again or compile the model again"


def typed(value: object, kind: type[T], where: str, hint: str = NEWER) -> T:
    """A value of JSON as the type that it must have.

    Args:
        value: Of `optc.system.safe_json.parse_json`: finite, not deep, valid Unicode.
        kind: The type.
        where: The file, for messages.
        hint: What to do about a value that does not fit.

    Raises:
        ArtifactError: A key is missing or unknown, or a value of another type or out of range; says
            which, by its path in the JSON.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, place = _parts(str(error))
        at = f"{where}: {place}" if place else where
        raise ArtifactError(problem, where=at, hint=hint) from error


def _parts(text: str) -> tuple[str, str]:
    """The problem and the path in msgspec's message: ``Expected … - at `$.files[0].bytes` ``."""
    found = _MESSAGE.fullmatch(text)
    problem, of_key, path = found.groups() if found else (text, None, "")
    problem = _PATTERN.sub(_matching, problem).replace("`", "'")
    problem = problem[:1].lower() + problem[1:_SHOWN]
    return f"{problem} as its key" if of_key else problem, path.removeprefix(".")


def _matching(found: re.Match[str]) -> str:
    return "text that matches " + re.sub(r"\\\\(.)", r"\1", found[1])
