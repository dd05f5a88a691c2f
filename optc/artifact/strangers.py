"""Files that others put into an artifact's folder: who replaces or removes it must not delete them,
be they the model that is compiled, a text, or an adapter."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from optc.artifact.jsonio import read_json
from optc.artifact.manifest import MANIFEST_NAME, REPORT_NAME
from optc.artifact.trust.names import BESIDE
from optc.errors import ArtifactError, InputError

#: Of file browsers and network file systems, and what an optc that was killed left.
_NOBODYS = re.compile(r"\.DS_Store|Thumbs\.db|\.nfs[0-9a-f]+|\..*\.partial-\d+")
#: Folders whose files are the artifact's where its manifest cannot be read.
_FOLDERS = ("engines", "tokenizer")
_TOLD = 3


def check_no_strangers(folder: Path, where: str, done: str) -> None:
    """Check that an artifact's folder holds the artifact alone.

    Args:
        folder: The artifact's, which may be damaged.
        where: Names it in messages.
        done: What is refused else, such as ``replaced``.

    Raises:
        InputError: It holds other files, which would be lost.
    """
    found = strangers(folder)
    if found:
        more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
        raise InputError(
            f"holds files that are no part of the artifact: {', '.join(found[:_TOLD])}{more}; "
            f"not {done}",
            where=where,
            hint="move them away first",
        )


def strangers(folder: Path) -> list[str]:
    """Paths in an artifact's folder of files and links that are no part of it, sorted."""
    own = {MANIFEST_NAME, REPORT_NAME, *BESIDE}
    listed = _listed(folder)
    found = []
    for path in _files(folder):
        name = path.relative_to(folder)
        known = name.parts[0] in _FOLDERS if listed is None else name.as_posix() in listed
        if not (known or name.as_posix() in own or _NOBODYS.fullmatch(name.name)):
            found.append(name.as_posix())
    return sorted(found)


def _listed(folder: Path) -> set[str] | None:
    """Paths of files in the manifest; None where it does not say."""
    try:
        files = read_json(folder / MANIFEST_NAME).get("files")
    except ArtifactError:
        return None
    if not isinstance(files, list):
        return None
    return {str(one["path"]) for one in files if isinstance(one, dict) and "path" in one}


def _files(folder: Path) -> Iterator[Path]:
    """All that lies in a folder but folders; links to folders are files."""
    for place, folders, names in os.walk(folder):
        links = [one for one in folders if os.path.islink(os.path.join(place, one))]
        yield from (Path(place, name) for name in (*names, *links))
