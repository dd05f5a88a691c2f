"""Opens files that others made: in a model's folder, an artifact, an image layout, an adapter.

Such a file may be a pipe that nobody writes to, a device without an end, or a hole of a terabyte;
each is an `OSError` here, as of a file that cannot be read, which whoever asks for the file names
as its own error. What a user names on the command line may be a pipe, and is read elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from optc.system.safe_json import MAX_BYTES

#: Bytes that are read at once of a file that grows meanwhile.
_PIECE = 1 << 20
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def open_file(path: Path, *, follow: bool = True) -> BufferedReader:
    """A regular file for reading, as bytes.

    Args:
        path: The file.
        follow: Symbolic links; without, one is an error.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    flags = _FLAGS if follow else _FLAGS | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:  # a NUL in its name
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_file(path: Path, most_bytes: int = MAX_BYTES, *, follow: bool = True) -> bytes:
    """All bytes of a regular file that has no more than ``most_bytes``.

    Raises:
        OSError: As of `open_file`, or it has more.
    """
    with open_file(path, follow=follow) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size <= most_bytes:
            # Python makes room for all that it is asked to read: no more than there may be.
            data = stream.read(size + 1)
            while size < len(data) <= most_bytes and (more := stream.read(_PIECE)):
                data += more
            size = max(size, len(data))
    if size > most_bytes:
        problem = f"it has {size} bytes, more than the {most_bytes} that are read"
        raise OSError(errno.EOVERFLOW, problem, str(path))
    return data


def is_file(path: Path) -> bool:
    """True if there is a regular file of that name; of a name that no file can have there is
    none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
