"""Libraries of engines by the file that lies at a path now.

The system's loader knows libraries by name. Asked for a name that it has loaded, it gives that
library without a look at the file, although a compile may have replaced it since.
"""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

#: Device, inode and time of change.
File = tuple[int, int, int]
_lock = threading.Lock()
_files_at: dict[str, list[File]] = {}  # that were opened at a path, one after the other


def file_at(library: Path) -> File:
    """The file that lies at a path now."""
    status = library.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def name_of(library: Path) -> str:
    """A name for the file at a path, unlike those of files that lay there before."""
    file = file_at(library)
    with _lock:
        files = _files_at.setdefault(str(library), [])
        if file not in files:
            files.append(file)
        return f"{library.parent}/{'./' * files.index(file)}{library.name}"


def open_library(library: Path) -> ctypes.CDLL:
    """The code of the file at a path."""
    return ctypes.CDLL(name_of(library))
