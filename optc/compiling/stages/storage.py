"""Bytes of an artifact: what its engines share, and what is there more than once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optc.artifact.manifest import FileEntry
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.system.units import byte_text

#: Above it is said that an engine is larger than what it was made of; padding takes some percent.
_LARGER = 1.1


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
    engines: Sequence[BuiltEngine],
    files: Sequence[FileEntry],
    copied_bytes: int,
    source_bytes: int,
) -> dict[str, int]:
    """For the report.

    Args:
        engines: All of the artifact.
        files: Theirs and all others.
        copied_bytes: Of files that equal another one and take their room all the same.
        source_bytes: As of `checkpoint_bytes`.

    Returns:
        ``bytes`` that the artifact takes, ``linked_bytes`` that equal files would take if they
        were not stored once, and ``duplicated_bytes``: equal files that are there twice, and
        weights that several engines of a role each have in a form of their own, but one;
        ``source_bytes``.
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
        "source_bytes": source_bytes,
    }


def checkpoint_bytes(folder: Path) -> int:
    """The bytes of the files of weights in a model's folder."""
    from optc.importer.checkpoint import checkpoint_files

    return sum(file.stat().st_size for file in checkpoint_files(folder))


def larger_than_source(engines: Sequence[BuiltEngine], source_bytes: int) -> list[str]:
    """A warning for each of the target's engines whose weights take more than the checkpoint."""
    return [
        f"the weights of engine {built.entry.name} take {byte_text(built.build.weight_bytes)}, the "
        f"checkpoint {byte_text(source_bytes)}: a recipe of fewer bits makes less of it"
        for built in engines
        if built.entry.role == TARGET and built.build.weight_bytes > _LARGER * source_bytes
    ]
