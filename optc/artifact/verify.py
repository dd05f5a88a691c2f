"""Check of an artifact's files against the sizes and hashes in its manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from optc.artifact.digests import hashing_threads, range_sha256
from optc.artifact.files import check_size
from optc.artifact.manifest import MANIFEST_NAME, REPORT_NAME, FileEntry
from optc.artifact.trust.names import BESIDE
from optc.errors import ArtifactError

#: ``progress(path, bytes done)`` after each file.
VerifyProgress = Callable[[str, int], None]
#: Each file with its checks, in order.
_Begun = list[tuple[FileEntry, list[Future[None]]]]

_HINT = "copy the artifact again or compile the model again"
#: Files from this size on are hashed beside other work.
_LARGE = 16 << 20


class Range(NamedTuple):
    """Bytes ``start:stop`` of a file, their sha256 in hex, and what errors call that."""

    start: int
    stop: int
    sha256: str
    what: str


def ranges_of(entry: FileEntry, *, whole: bool) -> list[Range]:
    """Ranges of a file to hash: its pieces, and all of it too if ``whole`` or where it has none."""
    pieces = []
    if entry.pieces is not None:
        for index, digest in enumerate(entry.pieces.sha256):
            start = index * entry.pieces.bytes
            stop = min(start + entry.pieces.bytes, entry.bytes)
            pieces.append(Range(start, stop, digest, f"the sha256 of its bytes {start}:{stop}"))
    if pieces and not whole:
        return pieces
    return [Range(0, entry.bytes, entry.sha256, "its sha256"), *pieces]


def check_contents(path: Path, part: Range) -> None:
    """Check the sha256 of a part of a file.

    Raises:
        ArtifactError: The file is unreadable or differs from what was written; names it.
    """
    try:
        actual = range_sha256(path, part.start, part.stop)
    except OSError as error:
        raise ArtifactError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:
        raise ArtifactError("became shorter while it was read", where=str(path)) from error
    if actual != part.sha256:
        raise ArtifactError(
            f"the file is corrupted: {part.what} differs from the manifest's",
            where=str(path),
            hint=_HINT,
        )


def check_files(
    folder: Path,
    files: Sequence[FileEntry],
    *,
    contents: bool = True,
    whole: bool = False,
    progress: VerifyProgress | None = None,
) -> None:
    """Check all files, sizes first so that a truncated file is found at once.

    Args:
        folder: The artifact.
        files: Entries of its manifest.
        contents: Also hash every file, on all usable threads.
        whole: Check the sha256 of files that have pieces as well as the pieces'.
        progress: Called with each hashed file's path and length in bytes.

    Raises:
        ArtifactError: The first file that is missing or differs. No thread runs on.
    """
    for entry in files:
        check_size(folder, entry)
    if not contents:
        return
    with _begun(folder, files, whole=whole) as checks:
        _finish(checks, progress)


@contextmanager
def contents_checked_beside(folder: Path, files: Sequence[FileEntry]) -> Iterator[None]:
    """Hash small files before the body and large ones on threads beside it.

    Raises:
        ArtifactError: As `check_files`, also in place of an error of the body, because a damaged
            file may be what the body failed on.
    """
    check_files(folder, files, contents=False)
    check_files(folder, [entry for entry in files if entry.bytes < _LARGE])
    large = [entry for entry in files if entry.bytes >= _LARGE]
    with _begun(folder, large, whole=False) as checks:
        try:
            yield
        except Exception:
            _finish(checks)
            raise
        _finish(checks)


@contextmanager
def _begun(folder: Path, files: Sequence[FileEntry], *, whole: bool) -> Iterator[_Begun]:
    """The checks of all files' contents, begun on threads; at the end of the body those that run
    are waited for and others dropped."""
    threads = hashing_threads()
    try:
        yield [
            (
                entry,
                [
                    threads.submit(check_contents, folder / entry.path, part)
                    for part in ranges_of(entry, whole=whole)
                ],
            )
            for entry in files
        ]
    finally:
        threads.shutdown(cancel_futures=True)


def _finish(checks: _Begun, progress: VerifyProgress | None = None) -> None:
    for entry, parts in checks:
        for part in parts:
            part.result()
        if progress is not None:
            progress(entry.path, entry.bytes)


def unlisted_files(folder: Path, files: Sequence[FileEntry]) -> list[str]:
    """Paths of files in the folder that the manifest does not name, sorted; without those that
    belong to every artifact (`optc.artifact.trust`)."""
    known = {entry.path for entry in files} | {MANIFEST_NAME, REPORT_NAME, *BESIDE}
    present = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir())
    return sorted(set(present) - known)
