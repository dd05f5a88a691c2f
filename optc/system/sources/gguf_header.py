"""The first keys of a GGUF file. The importer has the last word on it."""

from __future__ import annotations

import struct
from pathlib import Path

from optc.system.foreign.file import open_file

MAGIC = b"GGUF"
_READ = 1 << 16
_MOST_KEYS = 64
_TEXT = 8
#: Bytes of a value by its type; lists are none that come first.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def general(file: Path) -> dict[str, str]:
    """Texts under ``general.`` in the first bytes of a GGUF file, as far as they can be read.

    Raises:
        OSError: It cannot be read.
    """
    with open_file(file) as stream:
        data = stream.read(_READ)
    found: dict[str, str] = {}
    try:
        (count,) = struct.unpack_from("<Q", data, 16)
        at = 24
        for _ in range(min(count, _MOST_KEYS)):
            key, at = _text(data, at)
            (kind,) = struct.unpack_from("<I", data, at)
            at += 4
            if kind == _TEXT:
                value, at = _text(data, at)
                found[key] = value
            else:
                at += _SIZES[kind]
    except (struct.error, KeyError, UnicodeDecodeError):
        pass  # a list, or the end of what was read: the rest is the importer's
    return {k.removeprefix("general."): v for k, v in found.items() if k.startswith("general.")}


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    end = at + 8 + length
    if end > len(data):
        raise struct.error
    return data[at + 8 : end].decode(), end
