"""The list of a trimmed vocabulary: which token of the source model each token is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from optc.errors import InputError
from optc.system.safe_json import JSONError, parse_json

#: Name of the file.
KEPT_IDS = "kept_ids.json"


def write_ids(folder: Path, kept: Sequence[int]) -> None:
    """Write the source model's ids of the tokens 0, 1, …, ascending."""
    (folder / KEPT_IDS).write_text(json.dumps(list(kept), separators=(",", ":")), "utf-8")


def read_ids(folder: Path) -> list[int]:
    """Read the ids that `write_ids` wrote.

    Raises:
        InputError: It is missing, or no list of ascending ids.
    """
    path = folder / KEPT_IDS
    try:
        found = parse_json(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, JSONError) as error:
        raise InputError(f"cannot read the vocabulary: {error}", where=str(path)) from error
    if not isinstance(found, list) or not found or any(type(one) is not int for one in found):
        raise InputError("is no list of ids", where=str(path))
    if found[0] < 0 or any(a >= b for a, b in pairwise(found)):
        raise InputError("its ids do not ascend", where=str(path))
    return found


def digest_ids(kept: Sequence[int]) -> str:
    """sha256 in hex of ids as 64-bit integers, little-endian."""
    return hashlib.sha256(np.asarray(kept, "<i8").tobytes()).hexdigest()
