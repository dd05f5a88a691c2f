"""`apply_patch`: the new artifact, from the old one and a patch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import IO

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import short_digest
from optc.artifact.patches.make import check_same_engines
from optc.artifact.patches.patch import CHANGES_NAME, OpenedPatch, PatchedFile
from optc.artifact.verify import unlisted_files
from optc.artifact.writer import ArtifactWriter
from optc.errors import ArtifactError, InputError
from optc.system.foreign.file import open_file

_BLOCK = 1 << 20


def apply_patch(
    opened: OpenedPatch, old: Artifact, output: Path, *, force: bool = False
) -> Artifact:
    """Write the new artifact, byte by byte, and check all of it before it takes its place.

    Args:
        opened: The patch, checked.
        old: The artifact that it was made for, its files checked.
        output: Folder of the new one.
        force: Replace an artifact that is there.

    Raises:
        InputError: The patch is for another artifact, or gives another engine; the output exists or
            cannot be written.
        ArtifactError: It does not give the artifact that it names. Nothing is written.
    """
    patch = opened.patch
    if patch.base != old.digest:
        raise InputError(
            f"the patch is for the artifact {short_digest(patch.base)}…, "
            f"not for {short_digest(old.digest)}…",
            where=str(opened.path),
            hint="give the artifact that it was made from",
        )
    sizes = {entry.path: entry.bytes for entry in old.manifest.files}
    for one in patch.files:
        if one.base is not None and sizes.get(one.base) != one.bytes:
            problem = f"{one.path!r} is made of {one.base!r}, which is not there with its length"
            raise ArtifactError(problem, where=str(opened.path))
    with ArtifactWriter(output, force=force) as writer:
        with open_file(opened.path / CHANGES_NAME) as changes:
            for one in patch.files:
                try:
                    _write(one, old.path, writer.folder / one.path, changes)
                except OSError as error:
                    problem = f"{one.path[:80]!r} cannot be written: {error.strerror}"
                    raise ArtifactError(problem, where=str(opened.path)) from error
        new = _checked(opened, writer.folder)
        check_same_engines(old, new)
        writer.store_once(new.manifest.files)
        return writer.place(new.manifest)


def _write(one: PatchedFile, old: Path, path: Path, changes: IO[bytes]) -> None:
    """Write a file, whose changes come next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if one.base is None:
        path.touch()
    else:
        shutil.copyfile(old / one.base, path)
    with path.open("r+b") as file:
        for offset, length in one.ranges:
            file.seek(offset)
            left = length
            while left:
                data = changes.read(min(left, _BLOCK))
                if not data:  # it became shorter since it was checked
                    raise ArtifactError("became shorter while it was read", where=CHANGES_NAME)
                file.write(data)
                left -= len(data)


def _checked(opened: OpenedPatch, folder: Path) -> Artifact:
    """The artifact that was written, every byte of it checked against its manifest.

    Raises:
        ArtifactError: It is none, or not that of the patch.
    """
    try:
        new = Artifact.open(folder)
    except ArtifactError as error:
        problem = f"gives no artifact: {error.message}"
        raise ArtifactError(problem, where=str(opened.path), hint=error.hint) from error
    if new.digest != opened.patch.result:
        given, named = short_digest(new.digest), short_digest(opened.patch.result)
        problem = f"gives {given}…, not the {named}… that it names"
        raise ArtifactError(problem, where=str(opened.path), hint="make it again with optc patch")
    if strangers := unlisted_files(folder, new.manifest.files):
        problem = f"gives a file {strangers[0][:80]!r} that the artifact does not list"
        raise ArtifactError(problem, where=str(opened.path))
    return new
