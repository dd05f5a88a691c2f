"""The files of an artifact that may be opened: those that the manifest lists, and no others.

A manifest comes with the files that it names. So a name in it is taken only if the file is listed
(then its digest is checked), is a regular file, and lies in the artifact's folder itself: symbolic
links could lead anywhere, also after the check.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from optc.artifact.jsonio import LINKS
from optc.artifact.manifest import MANIFEST_NAME, EngineEntry, FileEntry, Manifest
from optc.errors import ArtifactError

_HINT = "copy the artifact again or compile the model again"


def check_size(folder: Path, entry: FileEntry) -> None:
    """Check that a listed file is there, regular, reached by no symbolic link, and has its length.

    Raises:
        ArtifactError: It is not; names it.
    """
    path = folder / entry.path
    for parent in reversed(PurePosixPath(entry.path).parents[:-1]):
        _check_kind(folder / parent, stat.S_IFDIR, "folder")
    size = _check_kind(path, stat.S_IFREG, "file").st_size
    if size != entry.bytes:
        raise ArtifactError(
            f"the file has {size} bytes where the manifest says {entry.bytes}",
            where=str(path),
            hint=_HINT,
        )


def _check_kind(path: Path, kind: int, what: str) -> os.stat_result:
    try:
        found = path.lstat()
    except FileNotFoundError as error:
        raise ArtifactError(f"the {what} is missing", where=str(path), hint=_HINT) from error
    except OSError as error:
        raise ArtifactError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if stat.S_ISLNK(found.st_mode):
        raise ArtifactError(f"the {what} is a symbolic link", where=str(path), hint=LINKS)
    if stat.S_IFMT(found.st_mode) != kind:
        regular = "regular file" if kind == stat.S_IFREG else what
        raise ArtifactError(f"is no {regular}", where=str(path), hint=_HINT)
    return found


class ArtifactFiles:
    """Gives paths of an artifact's files by the names in its manifest.

    Args:
        folder: The artifact; it may itself be reached by a symbolic link.
        entries: All files of the manifest.
    """

    def __init__(self, folder: Path, entries: Sequence[FileEntry]) -> None:
        self.folder = folder
        self._entries = {entry.path: entry for entry in entries}

    def entry(self, path: str, used_by: str) -> FileEntry:
        """The entry of a file.

        Args:
            path: POSIX, relative to the artifact.
            used_by: What would open it, for the message.

        Raises:
            ArtifactError: The manifest does not list it.
        """
        if path not in self._entries:
            raise ArtifactError(
                f"{used_by} needs the file {path!r}, which the manifest does not list",
                where=str(self.folder / MANIFEST_NAME),
                hint=_HINT,
            )
        return self._entries[path]

    def path(self, path: str, used_by: str) -> Path:
        """Path of a file; raises as `entry`."""
        return self.folder / self.entry(path, used_by).path

    def of_engine(self, engine: EngineEntry) -> EngineFiles:
        """The files that an engine may open."""
        return EngineFiles(self, engine)

    def check(self, manifest: Manifest) -> None:
        """Check everything that the manifest says of files, but for their contents.

        Raises:
            ArtifactError: A listed file is missing, of another length, or no regular file; a file
                that the tokenizer or an engine uses is not listed; or a file that is not listed
                lies in the folder of an engine, where libraries look for what they load.
        """
        for entry in self._entries.values():
            check_size(self.folder, entry)
        if manifest.tokenizer is not None:
            template = manifest.tokenizer.chat_template
            for path in (*manifest.tokenizer.files, *([template] if template else [])):
                self.entry(path, "the tokenizer")
        for engine in manifest.engines:
            for name in engine.files:
                self.entry(posixpath.join(engine.folder, name), f"engine {engine.name!r}")
            self._check_folder(engine.folder)

    def _check_folder(self, name: str) -> None:
        folder = self.folder / name
        for parent, folders, files in os.walk(folder):
            inside = Path(parent).relative_to(self.folder)
            links = [each for each in folders if os.path.islink(os.path.join(parent, each))]
            for each in sorted((*files, *links)):
                if (inside / each).as_posix() not in self._entries:
                    raise ArtifactError(
                        "the manifest does not list this file, and it lies in an engine's folder",
                        where=str(self.folder / inside / each),
                        hint="remove it, or copy the artifact again",
                    )


class EngineFiles:
    """The files that one engine may open, by their names in its folder."""

    def __init__(self, files: ArtifactFiles, engine: EngineEntry) -> None:
        self._files, self._engine = files, engine

    def error(self, message: str) -> ArtifactError:
        """An error about the engine's part of the manifest, to be raised."""
        where = f"{self._files.folder / MANIFEST_NAME}: engine {self._engine.name!r}"
        return ArtifactError(message, where=where, hint=_HINT)

    def entry(self, name: str, beside: str = ".") -> FileEntry:
        """The entry of a file.

        Args:
            name: Of the file, relative to its folder.
            beside: That folder, relative to the engine's.

        Raises:
            ArtifactError: The manifest does not list it.
        """
        path = posixpath.normpath(posixpath.join(self._engine.folder, beside, name))
        return self._files.entry(path, f"engine {self._engine.name!r}")

    def path(self, name: str, beside: str = ".") -> Path:
        """Path of a file; raises as `entry`."""
        return self._files.folder / self.entry(name, beside).path
