"""Reserves the place of an artifact for one process, and removes what processes before it left.

The reservation is a lock (flock) on the file ``.NAME.lock`` beside the place. The system gives it
back when its process ends, however that ends; so whoever has the lock knows that the unfinished
folders of the place belong to nobody.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from pathlib import Path

#: What a file system answers that has no locks; then there is no reservation, and nothing is
#: removed. The move into place is still one step, so that no artifact is lost.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


class HeldError(Exception):
    """Another process has the place.

    Attributes:
        holder: Its number; empty where it has not written it yet.
    """

    def __init__(self, holder: str) -> None:
        self.holder = holder


class Reservation:
    """The lock of one place."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path = place.with_name(f".{place.name}.lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock and remove what killed processes left of unfinished artifacts there.

        Raises:
            HeldError: Another process has it.
            OSError: The file cannot be made.
        """
        while self._descriptor is None:
            descriptor = self._opened()
            if descriptor is None:
                return
            # Its last holder removes the file: the lock counts only if it is on the file that
            # others will find.
            if _same_file(descriptor, self._path):
                self._descriptor = descriptor
            else:
                os.close(descriptor)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        for folder in left_behind(self._place):
            shutil.rmtree(folder, ignore_errors=True)

    def release(self) -> None:
        """Remove the file and give the lock back; nothing where there is none."""
        if self._descriptor is None:
            return
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None

    def _opened(self) -> int | None:
        """The file, locked; None where there are no locks."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise HeldError(holder) from error
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _NO_LOCKS:
                raise
            self._path.unlink(missing_ok=True)
            return None
        return descriptor


def left_behind(place: Path) -> list[Path]:
    """Folders beside a place that an unfinished write of it makes."""
    name = re.compile(rf"\.{re.escape(place.name)}\.(partial-[0-9]+|scratch-[a-z0-9_]+)")
    with os.scandir(place.parent) as entries:
        found = [
            e.name for e in entries if name.fullmatch(e.name) and e.is_dir(follow_symlinks=False)
        ]
    return [place.with_name(each) for each in sorted(found)]


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
