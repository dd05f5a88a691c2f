"""Logs of receipts: a line of JSON each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from optc.errors import InputError
from optc.runtime.receipts.receipt import Receipt, read_receipt


def read_receipts(path: Path) -> Iterator[tuple[int, Receipt]]:
    """The receipts of a file, with the numbers of their lines from 1. A last line without an end is
    left out: a server that was killed has not finished it.

    Raises:
        InputError: The file cannot be read, or a line is no receipt; names it.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if line.endswith("\n") and line.strip():
                    yield number, read_receipt(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", where=str(path)) from error
