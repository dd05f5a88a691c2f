"""`Scratch`: a temporary folder that does not outlive its process for long, even a killed one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_LOCK = ".lock"
#: A folder without a lock is being made, or was when its process was killed.
_MADE_WITHIN_S = 3600.0


class Scratch(tempfile.TemporaryDirectory[str]):
    """As `tempfile.TemporaryDirectory`, for ``kind`` of work. Its process holds a lock in it, which
    the system lets go with the process: the next one of the kind removes what was left."""

    def __init__(self, kind: str) -> None:
        prefix = f"optc-{kind}-"
        remove_leftovers(Path(tempfile.gettempdir()), prefix)
        super().__init__(prefix=prefix)
        self._held = _locked(Path(self.name))

    def cleanup(self) -> None:
        """Remove the folder; again has no effect."""
        super().cleanup()
        if self._held is not None:
            os.close(self._held)
            self._held = None


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove this user's folders of that prefix whose process is gone."""
    with suppress(OSError):
        for one in os.scandir(folder):
            if not one.name.startswith(prefix):
                continue
            with suppress(OSError):
                if one.is_dir(follow_symlinks=False) and one.stat().st_uid == os.getuid():
                    _remove(Path(one.path))


def _remove(folder: Path) -> None:
    if not (folder / _LOCK).exists():
        if time.time() - folder.stat().st_mtime > _MADE_WITHIN_S:
            shutil.rmtree(folder, ignore_errors=True)
        return
    held = _locked(folder)
    if held is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None where another one does."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
