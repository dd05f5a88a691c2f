"""The store that a user wants blocks to be spilled to."""

from __future__ import annotations

import shutil
from pathlib import Path

from optc.errors import InputError
from optc.runtime.spill.stores import FileStore, HostStore, Store
from optc.system.units import parse_memory


def parse_spill(where: str | Path) -> Store:
    """The store that a user asks for: a size (``1GiB`` of memory), or a folder, with the file's
    size behind a colon (``/var/tmp:10GiB``) or a quarter of what is free there.

    Raises:
        InputError: It is neither, or no file can be made there.
    """
    text = str(where)
    if text[:1].isdigit():
        return HostStore(parse_memory(text, "prefix_spill"))
    folder, colon, size = text.rpartition(":")
    path = Path(folder if colon else text)
    if not path.is_dir():
        raise InputError(
            f"{str(path)!r} is neither a size nor a folder",
            where="prefix_spill",
            hint="for example 1GiB, /var/tmp or /var/tmp:10GiB",
        )
    if colon:
        return FileStore(path, parse_memory(size, "prefix_spill"))
    capacity = shutil.disk_usage(path).free // 4
    if not capacity:
        raise InputError(
            f"the disk of {text!r} is full", where="prefix_spill", hint="free room on it"
        )
    return FileStore(path, capacity)
