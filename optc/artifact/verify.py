"""Check of an artifact's files against the sizes and hashes in its manifest.

SHA-256 runs at about 1.5 to 2 GB/s on a core with SHA instructions, and the pages it reads stay in
the page cache, where the memory-mapped weights then find them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from optc.artifact.manifest import MANIFEST_NAME, REPORT_NAME, FileEntry
from optc.errors import ArtifactError

#: ``progress(path, bytes done)`` after each file.
VerifyProgress = Callable[[str, int], None]

_HINT = "copy the artifact again or compile the model again"


def file_sha256(path: Path) -> str:
    """sha256 in hex of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_size(folder: Path, entry: FileEntry) -> None:
    """Check that a file exists and has its length.

    Raises:
        ArtifactError: It is missing or of another length; names it.
    """
    path = folder / entry.path
    if not path.is_file():
        raise ArtifactError("the file is missing", where=str(path), hint=_HINT)
    size = path.stat().st_size
    if size != entry.bytes:
        raise ArtifactError(
            f"the file has {size} bytes where the manifest says {entry.bytes}",
            where=str(path),
            hint=_HINT,
        )


def check_contents(folder: Path, entry: FileEntry) -> None:
    """Check a file's length and sha256.

    Raises:
        ArtifactError: It is missing, unreadable, or differs from what was written; names it.
    """
    check_size(folder, entry)
    path = folder / entry.path
    try:
        actual = file_sha256(path)
    except OSError as error:
        raise ArtifactError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if actual != entry.sha256:
        raise ArtifactError(
            "the file is corrupted: its sha256 differs from the manifest's",
            where=str(path),
            hint=_HINT,
        )


def check_files(
    folder: Path,
    files: Sequence[FileEntry],
    *,
    contents: bool = True,
    progress: VerifyProgress | None = None,
) -> None:
    """Check all files, sizes first so that a truncated file is found at once.

    Args:
        folder: The artifact.
        files: Entries of its manifest.
        contents: Also hash every file.
        progress: Called with each hashed file's path and length in bytes.

    Raises:
        ArtifactError: The first file that is missing or differs.
    """
    for entry in files:
        check_size(folder, entry)
    if not contents:
        return
    for entry in files:
        check_contents(folder, entry)
        if progress is not None:
            progress(entry.path, entry.bytes)


def unlisted_files(folder: Path, files: Sequence[FileEntry]) -> list[str]:
    """Paths of files in the folder that the manifest does not name, sorted."""
    known = {entry.path for entry in files} | {MANIFEST_NAME, REPORT_NAME}
    present = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    return sorted(set(present) - known)
