"""Canonical JSON, and reading of an artifact's JSON; its types:
`optc.system.foreign.typed_json`."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from optc.errors import ArtifactError
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json

#: What to do about symbolic links.
LINKS = "copy the artifact with what its links lead to (cp -rL)"


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
            (`optc.system.safe_json`), such as an object that has a key twice.
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
