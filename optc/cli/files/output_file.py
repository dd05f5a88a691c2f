"""Files that a command writes beside its output: checked before the work, written in one step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from optc.errors import InputError
from optc.system.whole_file import write_whole


def check_output(path: Path, suffixes: Sequence[str], where: str) -> None:
    """Check that a file can be written, before anything long begins.

    Args:
        path: The file.
        suffixes: Of which its name has one, such as ``.html``.
        where: The option, for messages.

    Raises:
        InputError: Its name ends otherwise, it is a folder, or its folder is missing.
    """
    if path.suffix.lower() not in suffixes:
        raise InputError(
            f"{path.name!r} does not end in {' or '.join(suffixes)}", where=where, hint="name it so"
        )
    if path.is_dir():
        raise InputError(f"{path} is a folder", where=where, hint="give the name of a file")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", where=where, hint="make it first")


def write_output(path: Path, text: str) -> int:
    """Write a file as UTF-8, whole or not at all; its bytes.

    Raises:
        InputError: It cannot be written.
    """
    data = text.encode()
    try:
        write_whole(path, data)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error
    return len(data)
