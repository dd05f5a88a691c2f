"""The folder of this user's files that may be made again."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_DIGEST = hashlib.sha256


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


def keep_whole(path: Path, content: bytes) -> None:
    """Write a file that `read_whole` reads, if it can be written; else it only costs time."""
    keep_file(path, _DIGEST(content).digest() + content)


def read_whole(path: Path) -> bytes | None:
    """The content that `keep_whole` wrote, marked as used now; None if there is nothing, or nothing
    whole."""
    try:
        entry = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    size = _DIGEST().digest_size
    whole = _DIGEST(entry[size:]).digest() == entry[:size]
    return entry[size:] if whole else None


def forget_oldest(folder: Path, kept: int) -> None:
    """Remove the files of ``folder`` that were not used for longest, beyond so many."""
    try:
        found = sorted(folder.iterdir(), key=lambda p: p.stat().st_mtime)
        for path in found[: max(0, len(found) - kept)]:
            path.unlink()
    except OSError:
        return  # another process does so as well, or the folder is not ours to write


@cache
def code_digest() -> str:
    """The digest of this package's code: all that anything is made by is somewhere in it."""
    root = Path(__file__).parents[1]
    digest = _DIGEST()
    for path in sorted(_sources(root)):
        digest.update(f"{path.relative_to(root)} {path.stat().st_size} ".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources(root: Path) -> Iterator[Path]:
    """Its Python files. In a checkout, passes and backends are links to folders, which
    `Path.rglob` follows from Python 3.13 on only, and if told to."""
    for folder, _, names in os.walk(root, followlinks=True):
        yield from (Path(folder, name) for name in names if name.endswith(".py"))
