"""An OCI image layout: a folder of blobs by digest, and an index of what tags name.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from optc.artifact.jsonio import pretty_json, read_json
from optc.artifact.store.oci.copying import AGAIN, write_blob
from optc.artifact.store.oci.manifest import ARTIFACT_TYPE, MEDIA_TYPE, MOST_BYTES, Blob, digest_of
from optc.artifact.store.oci.place import Moved, Tagged, tags_hint
from optc.artifact.store.oci.reference import Reference
from optc.errors import InputError
from optc.system.foreign.file import open_file, read_file
from optc.system.foreign.typed_json import typed
from optc.system.whole_file import write_whole

_TAG = "org.opencontainers.image.ref.name"
_INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
_MARK, _INDEX = "oci-layout", "index.json"
_PUSH = "optc push ARTIFACT oci:FOLDER"


class _Entry(Struct, frozen=True):
    """The fields of an entry of the index that are read."""

    digest: str
    size: Annotated[int, Meta(ge=0, le=MOST_BYTES)]


class _Index(Struct, frozen=True):
    manifests: list[dict[str, Any]]


class Layout:
    """`optc.artifact.store.oci.place.Place` in a folder.

    Args:
        reference: Of a layout.
        folder: Its folder.

    Attributes:
        folder: As given.
    """

    def __init__(self, reference: Reference, folder: Path) -> None:
        self._reference, self.folder = reference, folder

    def has(self, blob: Blob) -> bool:
        """True if there is a file of its digest; a damaged one is none, and is written anew."""
        path = self._path(blob.digest)
        if not path.is_file() or path.stat().st_size != blob.size:
            return False
        with suppress(OSError):  # who prunes the layout meanwhile sees that it is wanted
            os.utime(path)
        with self._errors(path), open_file(path) as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}" == blob.digest

    def put(self, blob: Blob, source: Path, moved: Moved) -> None:
        """Copy a file, checked on the way."""
        with source.open("rb") as stream, self._writing(blob) as partial:
            write_blob(stream, partial, blob, moved, str(source))

    def put_bytes(self, blob: Blob, data: bytes) -> None:
        """Write bytes."""
        with self._writing(blob) as partial:
            partial.write_bytes(data)

    def put_manifest(self, data: bytes) -> None:
        """Write the manifest, and let the tag name it and nothing else."""
        blob = Blob(digest_of(data), len(data))
        self.put_bytes(blob, data)
        tag = self._reference.version
        entry = {
            "mediaType": MEDIA_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "digest": blob.digest,
            "size": blob.size,
            "annotations": {_TAG: tag},
        }
        with self._locked():
            entries = [one for one in self.entries() if _tag(one) != tag]
            self._write_index([*entries, entry])

    def tagged(self) -> list[Tagged]:
        """Tagged manifests, and those without a tag, in the index's order."""
        entries = self.entries()
        if not entries and not (self.folder / _INDEX).is_file():
            raise InputError("is no layout", where=str(self.folder), hint=_PUSH)
        return [Tagged(_tag(one), self._blob(one).digest, self._named(one)) for one in entries]

    def untag(self) -> None:
        """Take the tag out of the index; its blobs stay until they are pruned."""
        version = self._reference.version
        with self._locked():
            entries = self.entries()
            left = [one for one in entries if version not in (_tag(one), self._blob(one).digest)]
            if len(left) == len(entries):
                raise self._missing(entries)
            self._write_index(left)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other process of optc change the index meanwhile: it would lose a tag. Where the
        file system has no locks nothing is held."""
        try:
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # there is no folder, which whoever reads it says
            yield
            return
        try:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write_index(self, entries: list[dict[str, Any]]) -> None:
        index = {"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": entries}
        with self._errors():
            self._replace(_MARK, b'{"imageLayoutVersion":"1.0.0"}\n')
            self._replace(_INDEX, pretty_json(index))

    def manifest(self) -> bytes:
        """The manifest that tag or digest names.

        Raises:
            InputError: There is no layout, or none of that name in it.
        """
        entries, version = self.entries(), self._reference.version
        for entry in entries:
            if version in (_tag(entry), self._blob(entry).digest):
                return self._named(entry)
        raise self._missing(entries)

    def _blob(self, entry: dict[str, Any]) -> Blob:
        found = typed(entry, _Entry, str(self.folder / _INDEX))
        return Blob(found.digest, found.size)

    def _named(self, entry: dict[str, Any]) -> bytes:
        """The manifest of an entry."""
        return self._read(self._blob(entry))

    def _missing(self, entries: list[dict[str, Any]]) -> InputError:
        tags = [_tag(one) or self._blob(one).digest for one in entries]
        hint = tags_hint(tags) if tags else _PUSH
        problem = f"holds nothing called {self._reference.version!r}"
        return InputError(problem, where=str(self.folder), hint=hint)

    def get(self, blob: Blob, target: Path, moved: Moved) -> None:
        """Copy a blob, checked on the way."""
        path = self._path(blob.digest)
        with self._errors(path), open_file(path) as stream:
            write_blob(stream, target, blob, moved, str(path))

    def _read(self, blob: Blob) -> bytes:
        path = self._path(blob.digest)
        with self._errors(path):
            data = read_file(path, MOST_BYTES)
        if digest_of(data) != blob.digest:
            raise InputError("has other bytes than its digest says", where=str(path), hint=AGAIN)
        return data

    def entries(self) -> list[dict[str, Any]]:
        """The entries of the index; none where there is no index."""
        path = self.folder / _INDEX
        if not path.is_file():
            return []
        return typed(read_json(path), _Index, str(path)).manifests

    def _path(self, digest: str) -> Path:
        algorithm, _, name = digest.partition(":")
        if algorithm != "sha256" or len(name) != 64 or not name.isalnum():
            raise InputError(f"{digest[:80]!r} is no sha256 digest", where=str(self.folder))
        return self.folder / "blobs" / algorithm / name

    @contextmanager
    def _writing(self, blob: Blob) -> Iterator[Path]:
        """A file to write, which then has the blob's name: none is ever half there."""
        path = self._path(blob.digest)
        partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                yield partial
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)

    def _replace(self, name: str, data: bytes) -> None:
        write_whole(self.folder / name, data)

    @contextmanager
    def _errors(self, path: Path | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            verb = "written" if path is None else "read"
            where = str(path or self.folder)
            raise InputError(f"cannot be {verb}: {error.strerror}", where=where) from error


def _tag(entry: dict[str, Any]) -> str:
    annotations = entry.get("annotations")
    tag = annotations.get(_TAG) if isinstance(annotations, dict) else None
    return tag if isinstance(tag, str) else ""
