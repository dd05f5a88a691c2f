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
    if not numbers:
        return None
    return InputError(
        f"temporary files cannot be written: {os.strerror(numbers[0])}",
        where=tempfile.gettempdir(),
        hint="free space there, or name another folder by TMPDIR",
    )
