"""`Patch`: what a patch is, as ``patch.json`` says it.

A patch is a folder of two files. ``changes.bin`` holds the bytes that differ, one range after the
other. ``patch.json`` says where they go: for each file of the new artifact, in the order of their
paths, which file of the old one it begins as, and which ranges of it are replaced. Its digest is
that of the canonical JSON without the digest itself, as a manifest's is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from optc.artifact.files import check_size
from optc.artifact.jsonio import pretty_json, read_json
from optc.artifact.manifest import FileEntry, check_path, digest_of
from optc.artifact.verify import check_files
from optc.errors import ArtifactError, NoArtifactError
from optc.system.foreign.file import read_file
from optc.system.foreign.typed_json import Sha256, Size, typed

FORMAT_VERSION = 1
PATCH_NAME, CHANGES_NAME = "patch.json", "changes.bin"
_HINT = "copy the patch again, or make it again with optc patch"
_Length = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class PatchedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the new artifact.

    Attributes:
        path: POSIX, relative to the artifact.
        bytes: Its length.
        base: The file of the old artifact that it begins as, of the same length; None is nothing.
        ranges: Offset and length of what is replaced, in order; without a base all of it.
    """

    path: str
    bytes: Size
    base: str | None = None
    ranges: tuple[tuple[Size, _Length], ...] = ()

    def __post_init__(self) -> None:
        for path in (self.path, *([] if self.base is None else [self.base])):
            check_path(path)
        end = 0
        for offset, length in self.ranges:
            if offset < end or offset + length > self.bytes:
                raise ValueError(f"the ranges of {self.path[:80]!r} are not in order, or too long")
            end = offset + length
        if self.base is None and self.changed != self.bytes:
            raise ValueError(f"{self.path[:80]!r} has no base, and bytes that are not given")

    @property
    def changed(self) -> int:
        """Bytes that are replaced."""
        return sum(length for _, length in self.ranges)


class Patch(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole of ``patch.json``, but for format and digest.

    Attributes:
        name: Of the model.
        base: Digest of the artifact that it is applied to.
        result: Digest of the one that it gives.
        files: All of the new artifact, sorted by path, with the manifest and what stands beside it.
        changes: ``changes.bin``.
    """

    name: str
    base: Sha256
    result: Sha256
    files: tuple[PatchedFile, ...]
    changes: FileEntry

    def __post_init__(self) -> None:
        paths = [one.path for one in self.files]
        if paths != sorted(set(paths)):
            raise ValueError("its files are not sorted by path, or one is there twice")
        folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
        if both := sorted(folders & set(paths)):
            raise ValueError(f"{both[0][:80]!r} is a file and a folder")
        if self.changes.path != CHANGES_NAME:
            raise ValueError(f"its changes lie in {self.changes.path[:80]!r}")
        if self.changes.bytes != sum(one.changed for one in self.files):
            raise ValueError("its ranges are not as long as its changes")

    @property
    def digest(self) -> str:
        """sha256 in hex that identifies the patch."""
        return digest_of(self._body())

    def to_json(self) -> dict[str, Any]:
        """The JSON object as written."""
        body = self._body()
        return {**body, "digest": digest_of(body)}

    def placed(self) -> Iterator[tuple[PatchedFile, int]]:
        """Each file, with where its first range begins in ``changes.bin``."""
        offset = 0
        for one in self.files:
            yield one, offset
            offset += one.changed

    def _body(self) -> dict[str, Any]:
        return {"format": FORMAT_VERSION, **msgspec.to_builtins(self)}


@dataclass(frozen=True)
class OpenedPatch:
    """A patch whose files have been checked.

    Attributes:
        path: The folder.
        patch: What it is.
    """

    path: Path
    patch: Patch

    @property
    def digests(self) -> dict[str, str]:
        """sha256 in hex of its files by name, for signatures."""
        own = hashlib.sha256(pretty_json(self.patch.to_json())).hexdigest()
        return {PATCH_NAME: own, CHANGES_NAME: self.patch.changes.sha256}


def is_patch(folder: Path) -> bool:
    """True if a path is the folder of a patch."""
    return os.path.lexists(folder / PATCH_NAME)


def open_patch(folder: Path) -> OpenedPatch:
    """Open a patch and check all of it.

    Raises:
        NoArtifactError: There is no patch.
        ArtifactError: It is of another format or damaged.
    """
    if not is_patch(folder):
        problem = f"holds no {PATCH_NAME}" if folder.is_dir() else "no such patch"
        raise NoArtifactError(problem, where=str(folder), hint="give what optc patch wrote")
    path = folder / PATCH_NAME
    found = _parsed(read_json(path), str(path))
    if read_file(path) != pretty_json(found.to_json()):
        raise ArtifactError("is not in the form that optc writes", where=str(path), hint=_HINT)
    check_size(folder, found.changes)
    check_files(folder, [found.changes], whole=True)
    return OpenedPatch(folder, found)


def _parsed(body: dict[str, Any], where: str) -> Patch:
    version = typed(body.get("format"), int, f"{where}: format")
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"format version {version}, but this optc reads version {FORMAT_VERSION}",
            where=where,
            hint="install the optc that wrote it, or make it again",
        )
    stated = typed(body.pop("digest", None), str, f"{where}: digest")
    if stated != digest_of(body):
        problem = "the digest does not match the contents: the patch was changed or damaged"
        raise ArtifactError(problem, where=where, hint=_HINT)
    return typed({k: v for k, v in body.items() if k != "format"}, Patch, where)
