"""Sizes of memory as users write them, one reading for every option and parameter; and as they
read them."""

from __future__ import annotations

import re
from fractions import Fraction

from optc.errors import InputError

#: What ``--help`` and the docs say of sizes.
SIZE_HELP = "such as 2GiB; K, M, G are powers of 1024, KB, MB, GB of 1000"

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
#: A smaller amount of memory without a unit is a mistake.
_LEAST_PLAIN = 1 << 10
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?b)?|b)?\s*", re.IGNORECASE | re.ASCII)


def parse_bytes(text: str, where: str) -> int:
    """The bytes that ``text`` states, at least one.

    Units are those of the field: ``GiB`` is 2^30 (IEC 80000-13), ``GB`` is 10^9 (SI), and a plain
    ``G`` is 2^30, as ``du`` and Docker read it. Case does not matter; without a unit it is bytes.

    Args:
        text: Such as ``2GiB``, ``512M``, ``3.5 GB``, ``1000000``.
        where: The option or parameter, for the message.

    Raises:
        InputError: It is not a size, or less than one byte.
    """
    match = _SIZE.fullmatch(text)
    value = 0
    if match is not None:
        letter, suffix = (match[2] or "").lower(), (match[3] or "").lower()
        base = 1000 if suffix == "b" else 1024
        value = int(Fraction(match[1]) * base ** _POWERS[letter])
    if value < 1:
        raise InputError(f"{text!r} is not a size", where=where, hint=f"write a size {SIZE_HELP}")
    return value


def parse_memory(size: str | int, where: str) -> int:
    """The bytes of an amount of memory.

    Args:
        size: As of `parse_bytes`, or bytes.
        where: The option or parameter, for the message.

    Raises:
        InputError: It is no size, or so small a number without a unit that one was forgotten.
    """
    found = parse_bytes(size, where) if isinstance(size, str) else size
    stated = isinstance(size, str) and any(one.isalpha() for one in size)
    if found < _LEAST_PLAIN and not stated:
        raise InputError(
            f"{size} without a unit is {byte_text(found)}, in which nothing fits",
            where=where,
            hint=f"write the unit, such as {str(size).strip()}GiB: {SIZE_HELP}",
        )
    return found


def kv_text(beyond: int, whole: int) -> str:
    """Bytes of keys and values of a token, ``whole`` of them within windows and ``beyond`` behind
    them, for reading."""
    if beyond == whole:
        return byte_text(whole)
    return f"{byte_text(beyond)}, within windows {byte_text(whole)}"


def byte_text(count: int) -> str:
    """A number of bytes for reading: ``21.0 MiB``."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")  # pragma: no cover
