"""The OCI manifest of an artifact: a descriptor for each file, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from optc.artifact.artifact import Artifact
from optc.artifact.jsonio import canonical_json
from optc.artifact.manifest import MANIFEST_NAME, REPORT_NAME
from optc.artifact.trust.names import BESIDE
from optc.errors import ArtifactError
from optc.system.foreign.file import read_file
from optc.system.foreign.typed_json import Size, typed
from optc.system.safe_json import JSONError, parse_json

MEDIA_TYPE = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE = "application/vnd.optc.artifact.v1"
FILE_TYPE = "application/octet-stream"
TITLE = "org.opencontainers.image.title"
#: Of the artifact, beside the digests of its files.
DIGEST = "dev.optc.digest"
#: A config is required; this is the empty one of the specification.
EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
#: Largest manifest that registries must take.
MOST_BYTES = 4 << 20
#: Longest name of a file or folder that file systems take, in bytes.
_LONGEST = 255


@dataclass(frozen=True)
class Blob:
    """Bytes by their digest.

    Attributes:
        digest: ``sha256:`` and hex.
        size: Bytes.
        title: Path of the file, POSIX and relative to the artifact; empty for the config.
    """

    digest: str
    size: int
    title: str = ""


class _Annotations(Struct, frozen=True):
    title: str = field(name=TITLE)


class _Layer(Struct, frozen=True):
    annotations: _Annotations
    digest: Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
    size: Size


class _Layers(Struct, frozen=True):
    """The fields of a manifest that are read."""

    layers: list[_Layer]


def files_of(artifact: Artifact) -> list[Blob]:
    """All files of an artifact whose files have been checked, with those beside it, by path."""
    found = [Blob(f"sha256:{e.sha256}", e.bytes, e.path) for e in artifact.manifest.files]
    for name in (MANIFEST_NAME, REPORT_NAME, *BESIDE):
        path = artifact.path / name
        if path.is_file() and not path.is_symlink():
            data = read_file(path)
            found.append(Blob(digest_of(data), len(data), name))
    return sorted(found, key=lambda blob: blob.title)


def write_manifest(artifact: Artifact, files: Sequence[Blob]) -> bytes:
    """The manifest, byte for byte the same for the same files: it has no time."""
    return canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": MEDIA_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": {
                "mediaType": EMPTY_TYPE,
                "digest": digest_of(EMPTY),
                "size": len(EMPTY),
                "data": "e30=",
            },
            "layers": [
                {
                    "mediaType": FILE_TYPE,
                    "digest": blob.digest,
                    "size": blob.size,
                    "annotations": {TITLE: blob.title},
                }
                for blob in files
            ],
            "annotations": {TITLE: artifact.manifest.name, DIGEST: artifact.digest},
        }
    )


def read_manifest_files(data: bytes, where: str) -> list[Blob]:
    """The files that a manifest lists.

    Raises:
        ArtifactError: It is none of an artifact, or lists a path that leads out of the folder, or
            one twice.
    """
    try:
        value: Any = parse_json(data, max_bytes=MOST_BYTES)
    except JSONError as error:
        raise ArtifactError(
            f"the OCI manifest is not usable as JSON: {error}", where=where
        ) from error
    found: dict[str, Blob] = {}
    for layer in typed(value, _Layers, where).layers:
        title = layer.annotations.title
        _check_path(title, where)
        if title in found:
            raise ArtifactError(f"it lists {title[:80]!r} twice", where=where)
        found[title] = Blob(layer.digest, layer.size, title)
    for title in found:
        for parent in PurePosixPath(title).parents:
            if str(parent) in found:
                problem = f"it lists {str(parent)[:80]!r} as a file and as a folder"
                raise ArtifactError(problem, where=where)
    if MANIFEST_NAME not in found:
        raise ArtifactError(f"is no artifact of optc: it holds no {MANIFEST_NAME}", where=where)
    return list(found.values())


def described(data: bytes) -> dict[str, Any]:
    """A manifest's facts of its artifact: ``model``, ``digest`` and ``bytes``; None where it is
    one of other tools."""
    try:
        value: Any = parse_json(data, max_bytes=MOST_BYTES)
    except JSONError:
        value = None
    found: dict[str, Any] = dict.fromkeys(("model", "digest", "bytes"))
    if not isinstance(value, dict) or value.get("artifactType") != ARTIFACT_TYPE:
        return found
    notes, layers = value.get("annotations"), value.get("layers")
    if isinstance(notes, dict):
        named = {"model": notes.get(TITLE), "digest": notes.get(DIGEST)}
        found |= {key: text for key, text in named.items() if isinstance(text, str)}
    if isinstance(layers, list):
        each = [one for one in layers if isinstance(one, dict)]
        sizes = {str(one.get("digest")): one.get("size") for one in each}
        found["bytes"] = sum(size for size in sizes.values() if isinstance(size, int))
    return found


def digest_of(data: bytes) -> str:
    """The digest of bytes as OCI writes it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _check_path(title: str, where: str) -> None:
    """A path comes from whoever pushed: it must stay in the folder."""
    path = PurePosixPath(title)
    strange = "\\" in title or "\0" in title or str(path) != title
    long = any(len(part.encode()) > _LONGEST for part in path.parts) or len(title) > _LONGEST * 4
    if strange or long or path.is_absolute() or ".." in path.parts or title in ("", "."):
        raise ArtifactError(f"{title[:80]!r} is no path of a file in an artifact", where=where)
