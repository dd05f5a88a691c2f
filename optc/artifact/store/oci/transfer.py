"""Pushing an artifact to a layout or a registry, and pulling it from there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from optc.artifact.artifact import Artifact
from optc.artifact.store.oci.layout import Layout
from optc.artifact.store.oci.manifest import (
    EMPTY,
    Blob,
    digest_of,
    files_of,
    read_manifest_files,
    write_manifest,
)
from optc.artifact.store.oci.place import Place
from optc.artifact.store.oci.reference import Reference
from optc.artifact.store.oci.registry import Registry
from optc.artifact.writer import ArtifactWriter
from optc.system.progress import Progress, no_progress


@dataclass(frozen=True)
class Transfer:
    """The result of a push or a pull.

    Attributes:
        artifact: At its place on this machine.
        oci_digest: Of the OCI manifest, by which it can be pulled too.
        files: Of the artifact.
        bytes: Of different files.
        moved: Of those that were not there yet.
    """

    artifact: Artifact
    oci_digest: str
    files: int
    bytes: int
    moved: int


def open_place(reference: Reference, *, plain_http: bool = False) -> Place:
    """The layout or registry of a reference; opens nothing yet."""
    if reference.folder is not None:
        return Layout(reference, reference.folder)
    return Registry(reference, plain_http=plain_http)


def push(artifact: Artifact, place: Place, progress: Progress = no_progress) -> Transfer:
    """Push an artifact whose files have been checked. What is there already is not sent again, and
    the tag names the new one only once all of it is there.

    Raises:
        InputError: It cannot be written, or the registry refuses.
        UnavailableError: The registry cannot be reached.
        ArtifactError: A file changed meanwhile.
    """
    files = files_of(artifact)
    distinct = {blob.digest: blob for blob in files}
    missing = [blob for blob in distinct.values() if not place.has(blob)]
    count = _Count(progress, "push", sum(blob.size for blob in missing))
    for blob in missing:
        place.put(blob, artifact.path / blob.title, count)
    empty = Blob(digest_of(EMPTY), len(EMPTY))
    if not place.has(empty):
        place.put_bytes(empty, EMPTY)
    manifest = write_manifest(artifact, files)
    place.put_manifest(manifest)
    return _transfer(artifact, manifest, files, count.total)


def pull(
    place: Place,
    output: Path,
    where: str,
    *,
    force: bool = False,
    progress: Progress = no_progress,
) -> Transfer:
    """Pull an artifact; it is in its place once all of it is there and checked, in one step.

    Args:
        place: Where it is.
        output: Folder to write.
        where: Names the place in messages.
        force: Replace an artifact that is there.
        progress: Told how much is there.

    Raises:
        InputError: There is none, or the output cannot be written.
        UnavailableError: The registry cannot be reached.
        ArtifactError: It is damaged, or no artifact of optc.
    """
    manifest = place.manifest()
    files = read_manifest_files(manifest, where)
    with ArtifactWriter(output, force=force) as writer:
        first: dict[str, Path] = {}
        distinct = {blob.digest: blob.size for blob in files}
        count = _Count(progress, "pull", sum(distinct.values()))
        for blob in files:
            path = writer.folder / blob.title
            path.parent.mkdir(parents=True, exist_ok=True)
            if blob.digest not in first:
                place.get(blob, path, count)
                first[blob.digest] = path
            elif not _linked(path, first[blob.digest]):
                place.get(blob, path, _no_count)
        checked = Artifact.open(writer.folder)
        artifact = writer.place(checked.manifest)
    return _transfer(artifact, manifest, files, count.total)


def _no_count(count: int) -> None:
    """Counts nothing."""


def _linked(path: Path, known: Path) -> bool:
    """True if the file system could give ``known`` another name."""
    try:
        path.hardlink_to(known)
    except OSError:
        return False
    return True


class _Count:
    """Adds up bytes for a progress."""

    def __init__(self, progress: Progress, stage: str, total: int) -> None:
        self._progress, self._stage, self.total, self._done = progress, stage, total, 0

    def __call__(self, count: int) -> None:
        self._done += count
        self._progress(self._stage, self._done, self.total)


def _transfer(artifact: Artifact, manifest: bytes, files: list[Blob], moved: int) -> Transfer:
    size = sum({blob.digest: blob.size for blob in files}.values())
    return Transfer(artifact, digest_of(manifest), len(files), size, moved)
