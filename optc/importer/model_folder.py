"""Finds the folder that holds a model, and what the model is called.

A folder of the Hugging Face cache is named after its commit, and its root holds only links to
such folders: ``models--acme--tiny/snapshots/abc123`` is the model ``acme/tiny``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from optc.errors import InputError, OptcError
from optc.importer.adapted.folder import is_adapter_folder, merged_folder, stated_base
from optc.importer.config import CONFIG_FILE
from optc.importer.gguf.folder import gguf_folder, is_gguf
from optc.importer.hub import local_model
from optc.system.progress import tell
from optc.system.sources.recognize import check_model, missing_model

_CACHE = "models--"
_SNAPSHOTS = "snapshots"
_COMMIT = re.compile(r"[0-9A-Za-z._-]{1,64}")


def model_folder(path: Path, *, base: str | Path | None = None, code: bool = False) -> Path:
    """``path``, or the snapshot of its main branch where it is a model's root in the cache; of a
    GGUF file, or of an adapter by PEFT, the folder that is made of it.

    Args:
        path: The model.
        base: Of an adapter: its base, as a model is named; None is the one that it names.
        code: Of a base of the Hub Python code is wanted too.

    Raises:
        InputError: It is such a root, but of which snapshot cannot be told; or a damaged file; or
            what `optc.system.sources.recognize` takes for no model; or a base of what is no
            adapter.
        UnsupportedError, UnavailableError: As `optc.importer.gguf.folder.gguf_folder`,
            `optc.importer.adapted.folder.merged_folder` and `optc.importer.hub.local_model`.
    """
    check_model(path)
    if is_adapter_folder(path):
        name = model_name(path).rsplit("/", 1)[-1]
        return merged_folder(path, _base_folder(path, base, code), name)
    if base is not None:
        raise InputError(
            "a base is for an adapter by PEFT, which this is not", where="--base", hint="leave it"
        )
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


def _base_folder(adapter: Path, base: str | Path | None, code: bool) -> Path:
    named = stated_base(adapter) if base is None else str(base)
    try:
        place = local_model(named, code=code, progress=tell)
        if not place.exists():
            raise missing_model(place)
        return model_folder(place)
    except OptcError as error:
        whose = "the base that the adapter names" if base is None else "the base"
        raise type(error)(
            f"{whose}: {error.message}",
            where=error.where,
            hint=f"{error.hint}; or name the base: --base MODEL" if base is None else error.hint,
        ) from error


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
