"""Two toy artifacts that differ as a test wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import Manifest
from optc.artifact.writer import ArtifactWriter
from tests.artifact.toy import toy_manifest, write_files

WEIGHTS = "engines/target/weights.bin"


def gate(name: str, value: float | None, **more: Any) -> dict[str, Any]:
    """A gate as a report has it."""
    passed = None if value is None else True
    made = {"name": name, "value": value, "bound": 1.0, "passed": passed, "reason": ""}
    return {**made, "measured_on": "engine" if passed else "none", "engine": "target", **more}


def write_changed(
    output: Path,
    *,
    flip: int | None = None,
    change: Callable[[Manifest], Manifest] = lambda manifest: manifest,
    report: Mapping[str, Any] | None = None,
) -> Artifact:
    """The toy artifact with another byte in its weights, another manifest, or another report."""
    with ArtifactWriter(output) as writer:
        write_files(writer)
        if flip is not None:
            path = writer.folder / WEIGHTS
            data = bytearray(path.read_bytes())
            data[flip] ^= 1
            path.write_bytes(data)
        return writer.commit(change(toy_manifest(writer.hashed_files())), dict(report or {}))


def of_backend(name: str) -> Callable[[Manifest], Manifest]:
    """Makes the engine one of another backend."""

    def change(manifest: Manifest) -> Manifest:
        engines = tuple(replace(engine, backend=name) for engine in manifest.engines)
        return replace(manifest, engines=engines)

    return change
