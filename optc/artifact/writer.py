"""Atomic writing: an artifact is built in a folder beside its place and renamed when complete.

Whatever ends the work earlier (an error, a full disk, Ctrl-C, SIGTERM raised as an exception)
removes that folder and leaves what was there before untouched. What a killed process left is
removed by the next one that writes the same artifact.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from types import TracebackType
from typing import Any

from optc.artifact.artifact import Artifact, is_artifact
from optc.artifact.atomic_swap import exchange
from optc.artifact.digests import hashed_file, hashing_threads
from optc.artifact.jsonio import pretty_json
from optc.artifact.manifest import MANIFEST_NAME, REPORT_NAME, FileEntry, Manifest
from optc.artifact.reservation import HeldError, Reservation
from optc.artifact.strangers import check_no_strangers, strangers
from optc.artifact.trust.texts import trust_texts
from optc.errors import InputError
from optc.system.full_disk import FULL

_REASONS: dict[int | None, str] = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file system, or ulimit -f, takes no file so large",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENOTDIR: "a part of the path is a file",
    errno.ENAMETOOLONG: "the name is too long",
}
#: These can only come from writing, wherever in the compile they are raised.
_DISK_FULL = FULL | {errno.EROFS}


class ArtifactWriter:
    """Context manager around the writing of one artifact.

    Inside the ``with`` block, put files under `folder`; then call `commit` once. Leaving the block
    without it removes everything that was written, folders made for it included.

    Args:
        output: Folder of the artifact to be.
        force: Replace an artifact that is there; only once the new one is complete. An empty
            folder is replaced without it.

    Raises:
        InputError: The output exists and ``force`` is off, is something that must not be replaced,
            or holds files of others; another process is writing it; or it cannot be written
            (permissions, read-only or full disk, links in a circle).
    """

    def __init__(self, output: str | Path, *, force: bool = False) -> None:
        self.output = Path(output)
        self._place = self._resolved()
        if not self._place.name:
            raise InputError(
                "is the root of the file system", where=str(output), hint="name a folder with -o"
            )
        self._force = force
        self._made: list[Path] = []
        self._reservation = Reservation(self._place)
        self.folder = self._place.with_name(f".{self._place.name}.partial-{os.getpid()}")

    def __enter__(self) -> ArtifactWriter:
        """Check the output and make the work folder beside it."""
        try:
            self._check_output()
            self._make_parents()
            self._reservation.acquire()
            self.folder.mkdir()
            self._made.append(self.folder)
        except HeldError as error:
            self._clean_up()
            raise InputError(
                f"is being written already, by {_name_of(error.holder)}",
                where=str(self.output),
                hint="wait for its end, or name another output with -o",
            ) from error
        except OSError as error:
            self._clean_up()
            raise self._input_error(error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove what was not committed; turn a disk that failed into one clear error."""
        self._clean_up()
        cause = _disk_error(error)
        if cause is not None:
            raise self._input_error(cause) from error

    def subfolder(self, name: str) -> Path:
        """A new folder in the artifact."""
        path = self.folder / name
        path.mkdir(parents=True)
        return path

    def in_folder(self, folder: Path) -> ArtifactWriter:
        """A writer of the same artifact that writes into another folder, which is made: one attempt
        of several. Whoever made it moves the files into `folder` before it commits.

        Two engines must not be loaded from one path in one process, which would get the first one's
        code for both.
        """
        folder.mkdir()
        other = copy(self)
        other.folder = folder
        return other

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder beside the artifact for large files that do not belong into it."""
        prefix = f".{self._place.name}.scratch-"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=self.folder.parent) as folder:
            yield Path(folder)

    def free_bytes(self) -> int:
        """Bytes that may still be written where the artifact goes."""
        return shutil.disk_usage(self.folder).free

    def hashed_files(self) -> tuple[FileEntry, ...]:
        """Entries of all files written so far, sorted by path."""
        paths = sorted(p for p in self.folder.rglob("*") if p.is_file())
        with hashing_threads() as threads:
            return tuple(hashed_file(self.folder, path, threads) for path in paths)

    def store_once(self, files: Sequence[FileEntry]) -> int:
        """Make files of equal contents one file with several names (hard links).

        Copies of the artifact stay right where a file system or tool has no hard links: the
        files are then there several times.

        Returns:
            Bytes of files that equal another one and could not be linked.
        """
        first: dict[str, Path] = {}
        copied = 0
        for entry in files:
            path = self.folder / entry.path
            known = first.setdefault(entry.sha256, path)
            if known is path or known.samefile(path):
                continue
            twin = path.with_name(f"{path.name}.twin")
            try:
                twin.hardlink_to(known)
            except OSError:
                copied += entry.bytes
            else:
                twin.replace(path)
        return copied

    def commit(self, manifest: Manifest, report: dict[str, Any]) -> Artifact:
        """Write manifest and report and move the folder to its place, in one rename.

        Raises:
            InputError: Something appeared at the output meanwhile, or the disk is full.
        """
        self._write_texts(manifest, report)
        return self.place(manifest)

    def place(self, manifest: Manifest) -> Artifact:
        """Move the folder, which holds a whole artifact with its manifest, to its place, in one
        rename; in the place of `commit` for one that was written elsewhere.

        Raises:
            InputError: As `commit`.
        """
        self._check_output()  # again: what has come meanwhile must not be lost either
        try:
            if self._place.exists():
                shutil.copymode(self._place, self.folder)
            if self._force and self._place.exists():
                exchange(self.folder, self._place)  # the folder now holds the old artifact
            else:
                self.folder.rename(self._place)  # which also takes the place of an empty folder
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise self._exists() from error
            raise self._input_error(error) from error
        self._made = [p for p in self._made if p == self.folder]
        return Artifact(self.output, manifest)

    def keep_failed(self, manifest: Manifest, report: dict[str, Any]) -> Path:
        """Move the folder to ``<output>.failed`` for inspection, replacing an older one there; if
        that is something else, to ``<output>.failed-2``, or the next that is free."""
        self._write_texts(manifest, report)
        failed = self._place.with_name(f"{self._place.name}.failed")
        number = 1
        while os.path.lexists(failed) and (not is_artifact(failed) or strangers(failed)):
            number += 1
            failed = failed.with_name(f"{self._place.name}.failed-{number}")
        shutil.rmtree(failed, ignore_errors=True)
        try:
            self.folder.rename(failed)
        except OSError as error:
            raise self._input_error(error) from error
        self._made.clear()
        return self.output.with_name(failed.name)

    def _write_texts(self, manifest: Manifest, report: dict[str, Any]) -> None:
        (self.folder / MANIFEST_NAME).write_bytes(pretty_json(manifest.to_json()))
        (self.folder / REPORT_NAME).write_bytes(pretty_json(report))
        for name, text in trust_texts(manifest, report).items():
            (self.folder / name).write_bytes(text)

    def _check_output(self) -> None:
        if not os.path.lexists(self._place):
            return
        if self._place.is_mount():
            raise InputError(
                "is a mount point, which cannot be replaced",
                where=str(self.output),
                hint="name a folder in it with -o",
            )
        if self._place.is_dir() and not any(self._place.iterdir()):
            return
        if not self._force:
            raise self._exists()
        if not is_artifact(self._place):
            raise InputError(
                "exists and is no artifact; not replaced",
                where=str(self.output),
                hint="choose another folder with -o",
            )
        check_no_strangers(self._place, str(self.output), "replaced")

    def _resolved(self) -> Path:
        """The place behind links."""
        try:
            return self.output.resolve()
        except (OSError, RuntimeError, ValueError) as error:
            reason = "links lead in a circle" if isinstance(error, RuntimeError) else str(error)
            raise InputError(
                f"cannot be written: {reason}",
                where=str(self.output),
                hint="name another folder with -o",
            ) from error

    def _make_parents(self) -> None:
        for parent in reversed([p for p in self._place.parents if not p.exists()]):
            with suppress(FileExistsError):  # another process was faster; in a file, the rest fails
                parent.mkdir()
                self._made.append(parent)

    def _clean_up(self) -> None:
        if self.folder in self._made:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._reservation.release()
        for folder in reversed(self._made):
            with suppress(OSError):  # others use it, or removed it; what ended the work counts more
                folder.rmdir()

    def _exists(self) -> InputError:
        return InputError(
            "already exists", where=str(self.output), hint="--force replaces it, -o names another"
        )

    def _input_error(self, error: OSError) -> InputError:
        reason = _REASONS.get(error.errno, error.strerror or str(error))
        where, hint = str(self.output), "free space or name a writable folder with -o"
        place = Path(os.fsdecode(error.filename)) if error.filename else self.folder
        ours = place in self._place.parents or self._place.parent in place.parents
        if error.errno in _DISK_FULL and not ours:
            where, hint = str(place.parent), "free space there, or name another folder by TMPDIR"
        return InputError(f"cannot be written: {reason}", where=where, hint=hint)


def _name_of(holder: str) -> str:
    """Of the process that writes, be it a compile, a pull or a patch that is applied."""
    if holder == str(os.getpid()):
        return "this process"
    return f"process {holder}" if holder else "another process"


def _disk_error(error: BaseException | None) -> OSError | None:
    """The full or read-only disk among an error and its causes; None if that is not the reason."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in _DISK_FULL:
            return error
        error = error.__cause__ or error.__context__
    return None
