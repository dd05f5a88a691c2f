"""Where this user's files lie that may be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$OPTC_CACHE``, or ``$XDG_CACHE_HOME/optc`` (``~/.cache/optc``); it may not exist."""
    if own := os.environ.get("OPTC_CACHE"):
        return Path(own)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "optc"
