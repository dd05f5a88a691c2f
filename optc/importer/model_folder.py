"""Finds the folder that holds a model, and what the model is called.

A folder of the Hugging Face cache is named after its commit, and its root holds only links to
such folders: ``models--acme--tiny/snapshots/abc123`` is the model ``acme/tiny``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from optc.errors import InputError
from optc.importer.config import CONFIG_FILE
from optc.importer.gguf.folder import gguf_folder, is_gguf
from optc.sources.recognize import check_model

_CACHE = "models--"
_SNAPSHOTS = "snapshots"
_COMMIT = re.compile(r"[0-9A-Za-z._-]{1,64}")


def model_folder(path: Path) -> Path:
    """``path``, or the snapshot of its main branch where it is a model's root in the cache; of a
    GGUF file the folder that is made of it.

    Raises:
        InputError: It is such a root, but of which snapshot cannot be told; or a damaged file; or
            what `optc.sources.recognize` takes for no model.
        UnsupportedError, UnavailableError: As `optc.importer.gguf.folder.gguf_folder`.
    """
    check_model(path)
    if is_gguf(path):
        return gguf_folder(path)
    snapshots = path / _SNAPSHOTS
    if (path / CONFIG_FILE).exists() or not snapshots.is_dir():
        return path
    present = sorted(folder for folder in snapshots.iterdir() if folder.is_dir())
    main = _main_commit(path)
    if main is None and len(present) == 1:
        return present[0]
    if main is not None and snapshots / main in present:
        return snapshots / main
    raise InputError(
        "a model in the Hugging Face cache, whose main branch is not there",
        where=str(path),
        hint=f"give one of {', '.join(map(str, present))}" if present else "download it again",
    )


def model_name(path: Path) -> str:
    """``acme/tiny`` of a snapshot in the cache; else the folder's name as it was given, which of a
    link is the link's."""
    given = Path(os.path.abspath(path))  # not resolved: links keep their names
    root = given.parent.parent.name
    if given.parent.name == _SNAPSHOTS and root.startswith(_CACHE):
        return "/".join(root.removeprefix(_CACHE).split("--", 1))
    return given.name


def _main_commit(root: Path) -> str | None:
    """The commit of the main branch; None where the cache does not say."""
    try:
        commit = (root / "refs/main").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return commit if _COMMIT.fullmatch(commit) and set(commit) != {"."} else None
