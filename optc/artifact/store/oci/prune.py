"""Removes what no manifest of a layout needs any more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.artifact.store.oci.layout import Layout
from optc.artifact.store.oci.manifest import MOST_BYTES
from optc.errors import InputError
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json


@dataclass(frozen=True)
class Pruned:
    """The blobs that went, or would go.

    Attributes:
        blobs: How many.
        bytes: Of them.
        kept: Blobs that are needed, or too young.
    """

    blobs: int
    bytes: int
    kept: int


def prune(layout: Layout, least_age_s: float, *, dry: bool = False) -> Pruned:
    """Remove blobs that nothing in the index leads to, and parts of files of pushes that ended.

    Whatever manifests lead to stays, other tools' too.

    Args:
        layout: Its tags say what is needed.
        least_age_s: What was written or looked for later stays: a push may be about to name it.
        dry: Remove nothing.

    Raises:
        InputError: There is no layout, a manifest of it is missing or damaged, or a file cannot be
            removed.
    """
    tagged = layout.tagged()
    needed = {one.digest.partition(":")[2] for one in tagged}
    for one in tagged:
        needed |= set(_needed(layout.folder, one.manifest, needed))
    before, blobs, size, kept = time.time() - least_age_s, 0, 0, 0
    for path in sorted((layout.folder / "blobs").glob("*/*")):
        stat = path.lstat()
        if path.name in needed or stat.st_mtime > before:
            kept += 1
            continue
        blobs, size = blobs + 1, size + stat.st_size
        if not dry:
            _remove(path)
    return Pruned(blobs, size, kept)


def _needed(folder: Path, manifest: bytes, known: set[str]) -> Iterator[str]:
    """Hex digests of all that a manifest or an index leads to."""
    waiting = [manifest]
    seen = set(known)
    while waiting:
        for digest, kind in _descriptors(_parsed(waiting.pop(), folder)):
            algorithm, _, name = digest.partition(":")
            if name in seen or "/" in digest:
                continue
            seen.add(name)
            yield name
            path = folder / "blobs" / algorithm / name
            if ("manifest" in kind or "index" in kind) and path.is_file():
                waiting.append(read_file(path, MOST_BYTES))


def _descriptors(value: Any) -> Iterator[tuple[str, str]]:
    """Digests and media types anywhere in a manifest."""
    if isinstance(value, dict):
        digest, kind = value.get("digest"), value.get("mediaType")
        if isinstance(digest, str):
            yield digest, kind if isinstance(kind, str) else ""
        for one in value.values():
            yield from _descriptors(one)
    elif isinstance(value, list):
        for one in value:
            yield from _descriptors(one)


def _parsed(data: bytes, folder: Path) -> Any:
    try:
        return parse_json(data, max_bytes=MOST_BYTES)
    except JSONError as error:
        raise InputError(
            f"a manifest is not usable as JSON: {error}",
            where=str(folder),
            hint="nothing is removed: untag it first",
        ) from error


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise InputError(f"cannot be removed: {error.strerror}", where=str(path)) from error
