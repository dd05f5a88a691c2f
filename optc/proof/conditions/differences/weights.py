"""The stored tensors that differ between two engines, by the sha256 of their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc import registry
from optc.artifact.artifact import Artifact
from optc.artifact.digests import hashing_threads
from optc.artifact.manifest import EngineEntry
from optc.backend import StoredTensor, TensorsBackend
from optc.errors import InputError, UnavailableError

#: Bytes that are read at once.
_CHUNK = 4 << 20


@dataclass(frozen=True)
class WeightChanges:
    """The differences between the weights of two engines of one name.

    Attributes:
        engine: Its name.
        same: How many tensors are equal.
        tensors: The others: ``name``, and under ``a`` and ``b`` ``dtype``, ``shape``, ``bytes`` and
            ``sha256``, or None where there is none.
        reason: Why tensors could not be compared; empty where they were.
    """

    engine: str
    same: int = 0
    tensors: tuple[dict[str, Any], ...] = ()
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """An element of ``weights``."""
        tensors = list(self.tensors)
        return {
            "engine": self.engine,
            "same": self.same,
            "changed": None if self.reason else len(tensors),
            "tensors": tensors,
            "reason": self.reason,
        }


def weight_changes(a: Artifact, b: Artifact) -> list[WeightChanges]:
    """The weights of every engine that both artifacts have, in the order of ``b``."""
    before = {engine.name: engine for engine in a.manifest.engines}
    return [
        _engine_changes(a, before[engine.name], b, engine)
        for engine in b.manifest.engines
        if engine.name in before
    ]


def _engine_changes(
    a: Artifact, before: EngineEntry, b: Artifact, after: EngineEntry
) -> WeightChanges:
    if before.backend != after.backend:
        reason = f"weights of {before.backend} and {after.backend} have no tensors in common"
        return WeightChanges(after.name, reason=reason)
    try:
        old, new = _tensors(a, before), _tensors(b, after)
    except UnavailableError as error:
        return WeightChanges(after.name, reason=error.render())
    if old is None or new is None:
        reason = f"engines of {after.backend} have their weights within, in no form of tensors"
        return WeightChanges(after.name, reason=reason)
    if _places(a, old) == _places(b, new):
        return WeightChanges(after.name, same=len(new))
    described_old, described_new = _described(a, old), _described(b, new)
    names = dict.fromkeys([*described_new, *described_old])
    pairs = [(name, described_old.get(name), described_new.get(name)) for name in names]
    changed = tuple({"name": n, "a": x, "b": y} for n, x, y in pairs if x != y)
    return WeightChanges(after.name, len(pairs) - len(changed), changed)


def _tensors(artifact: Artifact, engine: EngineEntry) -> list[StoredTensor] | None:
    """The places of an engine's tensors in its files; None where its backend does not say.

    Raises:
        UnavailableError: The backend is not installed, or a package that reads the files.
    """
    try:
        backend = registry.backend(engine.backend)
    except InputError as error:
        raise UnavailableError(f"the backend {engine.backend} is not installed") from error
    if not isinstance(backend, TensorsBackend):
        return None
    return backend.stored_tensors(engine, artifact.files.of_engine(engine))


def _places(artifact: Artifact, tensors: list[StoredTensor]) -> list[tuple[object, ...]]:
    """The place of each tensor, with the digest of its file: equal places hold equal bytes."""
    digests = {artifact.path / entry.path: entry.sha256 for entry in artifact.manifest.files}
    return [(t.name, t.dtype, t.shape, t.offset, t.bytes, digests[t.path]) for t in tensors]


def _described(artifact: Artifact, tensors: list[StoredTensor]) -> dict[str, Mapping[str, Any]]:
    with hashing_threads() as threads:
        digests = threads.map(_sha256, tensors)
        return {
            tensor.name: {
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "bytes": tensor.bytes,
                "sha256": digest,
            }
            for tensor, digest in zip(tensors, digests, strict=True)
        }


def _sha256(tensor: StoredTensor) -> str:
    return tensor.sha256 or range_digest(tensor.path, tensor.offset, tensor.bytes)


def range_digest(path: Path, offset: int, length: int) -> str:
    """sha256 in hex of a part of a file that begins anywhere."""
    digest, left = hashlib.sha256(), length
    with path.open("rb") as stream:
        stream.seek(offset)
        while left and (chunk := stream.read(min(left, _CHUNK))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()
