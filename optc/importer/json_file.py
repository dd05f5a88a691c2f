"""Reads the JSON files of a model folder, which others wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json


def read_object(file: Path, *, hint: str = "", finite: bool = True) -> dict[str, Any]:
    """The JSON object in ``file``, without deep nesting or texts that nothing can encode.

    Args:
        file: Its path.
        hint: What to do where it is none.
        finite: Refuse NaN and infinities too.

    Raises:
        InputError: The file cannot be read, is too large, or holds no such object.
    """
    try:
        value = parse_json(read_file(file), finite=finite)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file), hint=hint) from error
    except JSONError as error:
        raise InputError(f"not readable as JSON: {error}", where=str(file), hint=hint) from error
    if not isinstance(value, dict):
        raise InputError("not a JSON object", where=str(file), hint=hint)
    return value
