"""What layouts and registries have in common for a transfer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from optc.store.oci.manifest import Blob

#: Told how many more bytes went through.
Moved = Callable[[int], None]


class Place(Protocol):
    """Holds blobs by digest and manifests by tag."""

    def has(self, blob: Blob) -> bool:
        """Whether the blob is there."""
        ...

    def put(self, blob: Blob, source: Path, moved: Moved) -> None:
        """Store the contents of a file."""
        ...

    def put_bytes(self, blob: Blob, data: bytes) -> None:
        """Store bytes in memory."""
        ...

    def put_manifest(self, data: bytes) -> None:
        """Store the manifest and let the tag name it."""
        ...

    def manifest(self) -> bytes:
        """The manifest that tag or digest names.

        Raises:
            optc.errors.InputError: There is none.
        """
        ...

    def get(self, blob: Blob, target: Path, moved: Moved) -> None:
        """Write a blob to a new file; its bytes are those of its digest.

        Raises:
            optc.errors.ArtifactError: It is missing, or has other bytes.
        """
        ...
