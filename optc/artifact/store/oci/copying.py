"""Streams of bytes that are hashed on their way."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import IO

from optc.artifact.store.oci.manifest import Blob
from optc.artifact.store.oci.place import Moved
from optc.errors import ArtifactError

_CHUNK = 1 << 20
#: What to do where bytes do not have their digest.
AGAIN = "fetch it again; if that fails too, push it again: optc push rewrites what a layout lost"


class BlobFile:
    """A new file that gets the bytes of a blob, from one stream or from several that go on; never
    more than the blob has. An error in the ``with`` block removes it.

    Args:
        target: The file; none may be there.
        blob: Its size and digest.
        moved: Told how many bytes came.
        where: Names their source in messages.

    Attributes:
        done: Bytes that are there.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, target: Path, blob: Blob, moved: Moved, where: str) -> None:
        self._target, self._blob, self._moved, self._where = target, blob, moved, where
        self._digest = hashlib.sha256()
        self.done = 0

    def __enter__(self) -> BlobFile:
        self._file = self._target.open("xb")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._file.close()
        except OSError:
            if error is None:
                self._target.unlink()
                raise
        if error is not None:
            self._target.unlink()

    @property
    def whole(self) -> bool:
        """It has as many bytes as the blob."""
        return self.done == self._blob.size

    def take(self, source: IO[bytes]) -> None:
        """Add what a stream has."""
        while chunk := source.read(min(_CHUNK, self._blob.size - self.done)):
            self._digest.update(chunk)
            self._file.write(chunk)
            self.done += len(chunk)
            self._moved(len(chunk))

    def begin_again(self) -> None:
        """Forget what is there."""
        self._file.seek(0)
        self._file.truncate()
        self._digest = hashlib.sha256()
        self._moved(-self.done)
        self.done = 0

    def check(self) -> None:
        """Check the digest.

        Raises:
            ArtifactError: The bytes are others.
        """
        self._file.flush()
        if f"sha256:{self._digest.hexdigest()}" != self._blob.digest:
            what = self._blob.title or self._blob.digest
            problem = f"has other bytes of {what!r} than their digest says"
            raise ArtifactError(problem, where=self._where, hint=AGAIN)


def write_blob(source: IO[bytes], target: Path, blob: Blob, moved: Moved, where: str) -> None:
    """Write a stream to a new file, never more than the blob has.

    Raises:
        ArtifactError: The stream has other bytes than the digest says; the file is removed.
        OSError: It cannot be read or written.
    """
    with BlobFile(target, blob, moved, where) as file:
        file.take(source)
        file.check()
