"""Where this user's files lie that may be made again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """``$OPTC_CACHE``, or ``$XDG_CACHE_HOME/optc`` (``~/.cache/optc``); it may not exist."""
    if own := os.environ.get("OPTC_CACHE"):
        return Path(own)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "optc"


def keep_file(path: Path, content: bytes) -> bool:
    """Write a file of the cache, whole or not at all; False if it cannot be written, which only
    costs time."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            part = Path(file.name)
            try:
                file.write(content)
                file.flush()
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
    except OSError:
        return False
    return True
