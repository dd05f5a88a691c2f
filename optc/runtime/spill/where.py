"""Where a user wants blocks to be spilled to."""

from __future__ import annotations

import shutil
from pathlib import Path

from optc.errors import InputError
from optc.runtime.byte_size import parse_bytes
from optc.runtime.spill.stores import FileStore, HostStore, Store


def parse_spill(where: str | Path) -> Store:
    """The store that a user asks for: a size (``1GiB`` of memory), or a folder, with the file's
    size behind a colon (``/var/tmp:10GiB``) or a quarter of what is free there.

    Raises:
        InputError: It is neither, or no file can be made there.
    """
    text = str(where)
    if text[:1].isdigit():
        return HostStore(_positive(parse_bytes(text), text))
    folder, colon, size = text.rpartition(":")
    path = Path(folder if colon else text)
    if not path.is_dir():
        raise InputError(
            f"{str(path)!r} is neither a size nor a folder",
            where="prefix_spill",
            hint="for example 1GiB, /var/tmp or /var/tmp:10GiB",
        )
    capacity = parse_bytes(size) if colon else shutil.disk_usage(path).free // 4
    return FileStore(path, _positive(capacity, text))


def _positive(size: int, text: str) -> int:
    if size < 1:
        raise InputError(f"{text!r} holds no block", where="prefix_spill", hint="more than 0 bytes")
    return size
