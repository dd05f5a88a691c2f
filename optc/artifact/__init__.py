"""The artifact: a folder with a manifest, written atomically and checked when opened."""

from optc.artifact.artifact import Artifact, read_manifest
from optc.artifact.manifest import (
    EngineEntry,
    FileEntry,
    GateEntry,
    Manifest,
    PassEntry,
    Source,
    TokenizerEntry,
)
from optc.artifact.writer import ArtifactWriter

__all__ = [
    "Artifact",
    "ArtifactWriter",
    "EngineEntry",
    "FileEntry",
    "GateEntry",
    "Manifest",
    "PassEntry",
    "Source",
    "TokenizerEntry",
    "read_manifest",
]
