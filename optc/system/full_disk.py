"""Full disks: errors that say which disk it is, which may be that of temporary files."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optc.errors import InputError

#: Numbers of errors that can only come from writing.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Bytes that a last line takes, and the answer of a child.
_LITTLE = 1 << 14
_TOLD = re.compile(r"\[Errno (\d+)\]")


@contextmanager
def on_disk_of(path: Path) -> Iterator[None]:
    """Let errors about a full disk name the file that was written.

    Raises:
        OSError: As what is inside, with its filename.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def full_temporary(said: str) -> InputError | None:
    """The error for a process that works with temporary files and has ended; None where a full
    disk was not the reason.

    Args:
        said: Its last lines.
    """
    numbers = [number for number in map(int, _TOLD.findall(said)) if number in FULL]
    return _of_temporary(numbers[0]) if numbers else None


@contextmanager
def temporary_files() -> Iterator[None]:
    """Let errors about a full disk, of a block that writes temporary files, say so.

    Raises:
        InputError: The disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            place = os.path.join(tempfile.gettempdir(), "optc")
            named = OSError(error.errno, error.strerror, place)  # for who asks which disk it is
            raise _of_temporary(error.errno) from named
        raise


def check_room(folder: Path) -> None:
    """Check that a little can still be written into a folder of temporary files: what has ended may
    not have been able to say that nothing can.

    Raises:
        InputError: The disk is full.
    """
    with temporary_files():
        (folder / "room").write_bytes(bytes(_LITTLE))


def _of_temporary(number: int) -> InputError:
    return InputError(
        f"temporary files cannot be written: {os.strerror(number)}",
        where=tempfile.gettempdir(),
        hint="free space there, or name another folder by TMPDIR",
    )
