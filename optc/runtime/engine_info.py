"""`EngineInfo`: which engine of an artifact is loaded, and why not another one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.artifact.choose import Choice, Rejected


@dataclass(frozen=True)
class EngineInfo:
    """The loaded engine.

    Attributes:
        artifact: Folder that holds it.
        name: The engine's, in the manifest.
        backend: That built and loaded it.
        target: Name of what it was compiled for.
        rejected: The artifact's other target engines, with the reason against each.
        digest: The artifact's; empty where it is of no interest.
    """

    artifact: Path
    name: str
    backend: str
    target: str
    rejected: tuple[Rejected, ...] = ()
    digest: str = ""

    @staticmethod
    def of(artifact: Path, choice: Choice, digest: str = "") -> EngineInfo:
        """The info of a chosen engine."""
        entry, rejected = choice.entry, choice.rejected
        target = entry.target.name
        return EngineInfo(artifact, entry.name, entry.backend, target, rejected, digest)

    def to_json(self) -> dict[str, Any]:
        """The ``engine`` of commands' JSON objects."""
        rejected = [{"name": other.name, "reason": other.reason} for other in self.rejected]
        names = {"name": self.name, "backend": self.backend, "target": self.target}
        return {**names, "rejected": rejected}

    def __str__(self) -> str:
        return f"{str(self.artifact)!r}: {self.name} ({self.backend} for {self.target})"
