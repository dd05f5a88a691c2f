"""Model folders that are made of something else, in the user's cache: whole, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def made_folder(place: Path, fill: Callable[[Path], None]) -> Path:
    """The folder ``place``, filled unless it is there with a config.json.

    Args:
        place: In the user's cache.
        fill: Writes the files into an empty folder.

    Raises:
        OSError: It cannot be written.
    """
    if (place / "config.json").is_file():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=place.parent))
    try:
        fill(made)
        os.replace(made, place)
    except OSError:
        if not (place / "config.json").is_file():  # else another process was faster
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return place
