"""The common interface of layouts and registries for a transfer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from optc.artifact.store.oci.manifest import Blob

#: Most tags that a message names.
_MOST_TAGS = 12

#: Told how many more bytes went through.
Moved = Callable[[int], None]


@dataclass(frozen=True)
class Tagged:
    """The artifact that a tag names.

    Attributes:
        tag: Empty where a manifest has none.
        digest: Of the OCI manifest.
        manifest: Its bytes.
    """

    tag: str
    digest: str
    manifest: bytes


class Place(Protocol):
    """Holds blobs by digest and manifests by tag."""

    def tagged(self) -> list[Tagged]:
        """All tags, and what they name.

        Raises:
            optc.errors.InputError: There is no such layout or repository.
        """
        ...

    def untag(self) -> None:
        """Take the tag away; blobs stay.

        Raises:
            optc.errors.InputError: There is no such tag, or the registry keeps it.
        """
        ...

    def has(self, blob: Blob) -> bool:
        """True if the blob is there."""
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


def tags_hint(tags: Sequence[str]) -> str:
    """Says which tags there are, the last ones of many."""
    shown = ", ".join(tags[-_MOST_TAGS:])
    more = len(tags) - _MOST_TAGS
    return f"there are {shown}" + (f" and {more} more" if more > 0 else "")
