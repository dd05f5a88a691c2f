"""The one way of reading a text file that a user gives."""

from __future__ import annotations

from pathlib import Path

from optc.errors import InputError

_MARK = "\ufeff"


def read_user_text(path: Path, where: str = "", what: str = "") -> str:
    """The text in a file of UTF-8, without the byte order mark that some editors put before it.

    Args:
        path: The file.
        where: The option that names it; empty names the file.
        what: It is, for messages; empty names the file.

    Raises:
        InputError: It cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(
            f"cannot read {what or path}: {reason}", where=where or str(path)
        ) from error


def without_mark(text: str) -> str:
    """A text that was read otherwise, such as from stdin, without its byte order mark."""
    return text.removeprefix(_MARK)
