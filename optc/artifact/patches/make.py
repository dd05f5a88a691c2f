"""`make_patch`: the layer from one artifact to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from optc.artifact.artifact import Artifact
from optc.artifact.digests import hashed_file, hashing_threads
from optc.artifact.jsonio import pretty_json
from optc.artifact.manifest import MANIFEST_NAME, REPORT_NAME, FileEntry
from optc.artifact.patches.patch import CHANGES_NAME, PATCH_NAME, OpenedPatch, Patch, PatchedFile
from optc.artifact.same_engine import check_same_engine
from optc.artifact.trust.names import BESIDE
from optc.artifact.writer import ArtifactWriter
from optc.errors import InputError
from optc.system.foreign.file import open_file

#: Bytes that are compared at once, and in how small pieces where they differ.
_BLOCK, _PIECE = 1 << 20, 4096


def make_patch(old: Artifact, new: Artifact, output: Path, *, gated: bool = True) -> OpenedPatch:
    """Write what ``new`` has and ``old`` has not; the same two give the same bytes.

    Args:
        old: Opened, its files checked.
        new: Likewise; its engines are those of ``old`` but for weights.
        output: Folder of the patch.
        gated: Refuse a ``new`` that was compiled without gates.

    Raises:
        InputError: They are the same, their engines differ in more than weights, ``new`` has no
            gates, or the output exists or cannot be written.
    """
    where = str(new.path)
    if old.digest == new.digest:
        raise InputError("is the same artifact", where=where, hint="there is nothing to patch")
    if gated and not new.manifest.gated:
        raise InputError(
            "was compiled without gates: nobody measured how good it is",
            where=where,
            hint="compile it with gates, or take it as it is with --no-gates",
        )
    check_same_engines(old, new)
    with ArtifactWriter(output) as writer:
        with (writer.folder / CHANGES_NAME).open("wb") as changes:
            files = tuple(_patched(old, new, changes))
        with hashing_threads() as threads:
            entry = hashed_file(writer.folder, writer.folder / CHANGES_NAME, threads)
        patch = Patch(
            name=new.manifest.name, base=old.digest, result=new.digest, files=files, changes=entry
        )
        (writer.folder / PATCH_NAME).write_bytes(pretty_json(patch.to_json()))
        writer.place(new.manifest)
    return OpenedPatch(output, patch)


def check_same_engines(old: Artifact, new: Artifact) -> None:
    """Check that two artifacts have the same engines, but for weights.

    Raises:
        InputError: They have not.
    """
    for engine in (*old.manifest.engines, *new.manifest.engines):
        check_same_engine(old.manifest, new.manifest, engine.name, str(new.path))


def _patched(old: Artifact, new: Artifact, changes: IO[bytes]) -> Iterator[PatchedFile]:
    """All files of the new artifact, whose changed bytes are written meanwhile."""
    listed = {entry.path: entry for entry in new.manifest.files}
    beside = [n for n in (MANIFEST_NAME, REPORT_NAME, *BESIDE) if (new.path / n).is_file()]
    same = {entry.sha256: entry.path for entry in reversed(old.manifest.files)}
    sizes = {entry.path: entry.bytes for entry in old.manifest.files}
    for path in sorted((*listed, *beside)):
        base = None if path not in listed else _base(listed[path], same, sizes)
        yield _changed(old.path, base, new.path, path, changes)


def _base(entry: FileEntry, same: Mapping[str, str], sizes: Mapping[str, int]) -> str | None:
    """The old file that a new one is made of: of the same bytes, or of the same name and length."""
    known = same.get(entry.sha256)
    return known or (entry.path if sizes.get(entry.path) == entry.bytes else None)


def _changed(old: Path, base: str | None, new: Path, path: str, changes: IO[bytes]) -> PatchedFile:
    with open_file(new / path) as mine:
        if base is None:
            data = mine.read()
            changes.write(data)
            return PatchedFile(path, len(data), None, ((0, len(data)),) if data else ())
        ranges: list[tuple[int, int]] = []
        size = 0
        with open_file(old / base) as theirs:
            while block := mine.read(_BLOCK):
                for start, piece in _differing(block, theirs.read(_BLOCK)):
                    changes.write(piece)
                    at = size + start
                    if ranges and sum(ranges[-1]) == at:
                        ranges[-1] = (ranges[-1][0], ranges[-1][1] + len(piece))
                    else:
                        ranges.append((at, len(piece)))
                size += len(block)
    return PatchedFile(path, size, base, tuple(ranges))


def _differing(block: bytes, other: bytes) -> Iterator[tuple[int, bytes]]:
    """The pieces of a block that the other has not, with where they begin."""
    if block == other:
        return
    for start in range(0, len(block), _PIECE):
        piece = block[start : start + _PIECE]
        if piece != other[start : start + _PIECE]:
            yield start, piece
