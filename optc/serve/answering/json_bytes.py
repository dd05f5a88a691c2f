"""`json_bytes`: JSON of chunks, of which there are thousands a second."""

from __future__ import annotations

import json

import msgspec

_ENCODE = msgspec.json.Encoder().encode


def json_bytes(value: object) -> bytes:
    """``value`` as JSON in ASCII: some clients take U+2028 and its kind for the end of a line."""
    try:
        data = _ENCODE(value)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can say and UTF-8 cannot
        data = b"\xff"
    return data if data.isascii() else json.dumps(value, separators=(",", ":")).encode()
