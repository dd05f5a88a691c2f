"""Bytes of an artifact: what its engines share, and what is there more than once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optc.artifact import FileEntry
from optc.driver.compiling.built_engine import BuiltEngine


def engine_reports(
    engines: Sequence[BuiltEngine], files: Sequence[FileEntry]
) -> list[dict[str, Any]]:
    """For the report, of each engine: bytes of its own files and of the weights among them, which
    engine's weights it reads, seconds and figures of its build."""
    sizes = {entry.path: entry.bytes for entry in files}
    return [
        {
            "name": built.entry.name,
            "role": built.entry.role,
            "backend": built.entry.backend,
            "target": built.entry.target.name,
            "bytes": sum(sizes[f"{built.entry.folder}/{name}"] for name in built.entry.files),
            "weight_bytes": built.build.weight_bytes,
            "weights_of": built.weights.folder.rsplit("/", 1)[-1],
            "seconds": built.seconds,
            "build": built.build.report,
        }
        for built in engines
    ]


def storage_report(
    engines: Sequence[BuiltEngine], files: Sequence[FileEntry], copied_bytes: int
) -> dict[str, int]:
    """For the report.

    Args:
        engines: All of the artifact.
        files: Theirs and all others.
        copied_bytes: Of files that equal another one and take their room all the same.

    Returns:
        ``bytes`` that the artifact takes, ``linked_bytes`` that equal files would take if they
        were not stored once, and ``duplicated_bytes``: equal files that are there twice, and
        weights that several engines of a role each have in a form of their own, but one.
    """
    distinct = sum({entry.sha256: entry.bytes for entry in files}.values())
    total = sum(entry.bytes for entry in files)
    repacked = 0
    for role in {built.entry.role for built in engines}:
        weights = [b.build.weight_bytes for b in engines if b.entry.role == role]
        repacked += sum(weights) - max(weights)
    return {
        "bytes": distinct + copied_bytes,
        "linked_bytes": total - distinct - copied_bytes,
        "duplicated_bytes": copied_bytes + repacked,
    }
