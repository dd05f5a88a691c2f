"""Numbers of requests at once, as users write them."""

from __future__ import annotations

from optc.errors import InputError


def parse_counts(text: str) -> list[int]:
    """The numbers in ``1,8,16``.

    Raises:
        InputError: It holds something else, or a number below 1.
    """
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if min(counts) < 1:
        raise InputError(
            f"{text!r} is no list of counts", where="--concurrency", hint="for example 1,8,16"
        )
    return counts
