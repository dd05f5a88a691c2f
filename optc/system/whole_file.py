"""Files that are written whole or not at all, whatever ends the writing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Bytes of a name that the name of the file beside it begins with: names have 255 at most.
_NAMED = 200


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of ``path`` in one step when the block ends: with the
    mode of what was there, and behind a link where it leads. If the block fails nothing is left of
    it, and what was there stays. What is no regular file, such as ``/dev/stdout``, is written
    itself.

    Raises:
        OSError: It cannot be moved there.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        yield place
        return
    name = os.fsdecode(os.fsencode(place.name)[:_NAMED])
    beside = place.with_name(f".{name}.partial-{os.getpid()}")
    try:
        yield beside
        if place.exists():
            shutil.copymode(place, beside)
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Write a file by `whole_file`.

    Raises:
        OSError: It cannot be written.
    """
    with whole_file(path) as file:
        file.write_bytes(data)
