"""Streams of bytes that are hashed on their way."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO

from optc.artifact.store.oci.manifest import Blob
from optc.artifact.store.oci.place import Moved
from optc.errors import ArtifactError

_CHUNK = 1 << 20
#: What to do where bytes do not have their digest.
AGAIN = "fetch it again; if that fails too, push it again: optc push rewrites what a layout lost"


def write_blob(source: IO[bytes], target: Path, blob: Blob, moved: Moved, where: str) -> None:
    """Write a stream to a new file, never more than the blob has.

    Raises:
        ArtifactError: The stream has other bytes than the digest says; the file is removed.
        OSError: It cannot be read or written.
    """
    digest, left = hashlib.sha256(), blob.size
    file = target.open("xb")
    try:
        with file:
            while chunk := source.read(min(_CHUNK, left)):
                left -= len(chunk)
                digest.update(chunk)
                file.write(chunk)
                moved(len(chunk))
        if f"sha256:{digest.hexdigest()}" != blob.digest:
            what = blob.title or blob.digest
            problem = f"has other bytes of {what!r} than their digest says"
            raise ArtifactError(problem, where=where, hint=AGAIN)
    except BaseException:
        target.unlink()
        raise
