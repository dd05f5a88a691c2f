"""A control group whose processes may take so much memory, page cache included."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optc.system.control_groups import group_folders

#: Files of the limit, by version of control groups.
_LIMITS = ("memory.max", "memory.limit_in_bytes")


class NotPermittedError(Exception):
    """No group can be made here; the message says why."""


@contextmanager
def limited(name: str, limit: int) -> Iterator[Path]:
    """A group below this process's own, removed at the end; its processes have ended by then.

    Raises:
        NotPermittedError: There are no groups, or no right to make one.
    """
    folders = group_folders("memory")
    if not folders:
        raise NotPermittedError("the system shows no control groups of memory")
    for parent in folders:
        group = parent / f"optc-{name}-{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            reason = f"no group can be made in {parent}: {error.strerror}"
            continue
        file = next((group / one for one in _LIMITS if (group / one).exists()), None)
        try:
            if file is None:
                reason = f"{parent} does not give the memory controller to groups below it"
                continue
            file.write_text(str(limit))
            yield group
            return
        except PermissionError as error:
            reason = f"{file}: {error.strerror}"
        finally:
            group.rmdir()
    raise NotPermittedError(reason)


def enter(group: Path) -> None:
    """Move this process into a group: what is to be run in a child before its program starts."""
    (group / "cgroup.procs").write_text(str(os.getpid()))


def forget(path: Path) -> None:
    """Drop a file's pages from the page cache, so that the group's processes read it themselves:
    pages count for the group that read them first."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
