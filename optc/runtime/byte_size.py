"""Sizes of memory as a user writes them."""

from __future__ import annotations

import re

from optc.errors import InputError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_bytes(text: str) -> int:
    """The number of bytes that ``text`` states: ``2GiB``, ``512M``, ``1000000``; units are
    powers of 1024.

    Raises:
        InputError: It is not a size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if not match:
        raise InputError(f"{text!r} is not a size", where="kv_memory", hint="for example 2GiB")
    return int(float(match[1]) * _UNITS[match[2].upper()])
