"""`Artifact`: an opened, checked artifact folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from optc.artifact.manifest import (
    MANIFEST_NAME,
    REPORT_NAME,
    EngineEntry,
    Manifest,
    parse_manifest,
)
from optc.artifact.verify import check_files
from optc.errors import ArtifactError, InputError, UnavailableError
from optc.target import host_features

Verify = Literal["full", "size"]


@dataclass(frozen=True)
class Artifact:
    """A folder whose manifest and files have been checked.

    Attributes:
        path: The folder.
        manifest: Its manifest.
    """

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path, verify: Verify = "full") -> Artifact:
        """Open an artifact and check its files.

        Args:
            path: The folder.
            verify: ``full`` hashes every file (about 0.6 s a GB); ``size`` trusts contents and
                checks only that every file is there with its length.

        Raises:
            ArtifactError: Not an artifact, another format, or a file missing or damaged.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        check_files(folder, manifest.files, contents=verify == "full")
        return cls(folder, manifest)

    @property
    def digest(self) -> str:
        """sha256 in hex that identifies the artifact."""
        return self.manifest.digest

    def engine(self, role: str = "target", available: frozenset[str] | None = None) -> EngineEntry:
        """The engine of ``role`` that uses most of this machine.

        Args:
            role: ``target`` or ``draft``.
            available: CPU features of the machine; None asks the machine.

        Raises:
            InputError: The artifact has no engine of that role.
            UnavailableError: None of them runs here; says which feature each one lacks.
        """
        candidates = [e for e in self.manifest.engines if e.role == role]
        if not candidates:
            roles = ", ".join(sorted({e.role for e in self.manifest.engines})) or "none"
            raise InputError(
                f"has no engine of role {role!r}", where=str(self.path), hint=f"roles: {roles}"
            )
        present = host_features() if available is None else available
        fitting = [e for e in candidates if not e.target.missing_on(present)]
        if not fitting:
            raise UnavailableError(
                "; ".join(_misfit(e, present) for e in candidates),
                where=str(self.path),
                hint="compile it for this machine with --target native",
            )
        return max(fitting, key=lambda e: len(e.target.features))

    def engine_folder(self, engine: EngineEntry) -> Path:
        """Folder of an engine's files, as `optc.backend.Backend.load` takes it."""
        return self.path / engine.folder

    def tokenizer_file(self) -> Path | None:
        """Path of ``tokenizer.json``, or None where the artifact has no tokenizer."""
        tokenizer = self.manifest.tokenizer
        if tokenizer is None:
            return None
        return next(self.path / f for f in tokenizer.files if f.endswith("tokenizer.json"))

    def chat_template(self) -> str:
        """Text of the chat template; empty where there is none."""
        tokenizer = self.manifest.tokenizer
        if tokenizer is None or not tokenizer.chat_template:
            return ""
        return (self.path / tokenizer.chat_template).read_text(encoding="utf-8")

    def report(self) -> dict[str, Any]:
        """Figures, timings and machine facts of the compile; empty where the file is gone.

        Raises:
            ArtifactError: The report is not JSON.
        """
        path = self.path / REPORT_NAME
        return read_json(path) if path.is_file() else {}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an artifact folder, its own digest checked, its files not.

    Raises:
        ArtifactError: The folder is missing, holds no manifest, or holds a damaged one.
    """
    if not folder.is_dir():
        problem = "is a file, not an artifact folder" if folder.exists() else "no such artifact"
        raise ArtifactError(
            problem, where=str(folder), hint="give the folder that optc compile wrote"
        )
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise ArtifactError(
            f"holds no {MANIFEST_NAME}",
            where=str(folder),
            hint="give the folder that optc compile wrote",
        )
    return parse_manifest(read_json(path), str(path))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ArtifactError: Unreadable or not a JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ArtifactError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError
        raise ArtifactError(
            f"is not JSON: {error}",
            where=str(path),
            hint="copy the artifact again or compile the model again",
        ) from error
    if not isinstance(value, dict):
        raise ArtifactError("is not a JSON object", where=str(path))
    return value


def _misfit(engine: EngineEntry, present: frozenset[str]) -> str:
    missing = ", ".join(engine.target.missing_on(present))
    return (
        f"engine {engine.name!r} was compiled for {engine.target.name} "
        f"and needs CPU features that this machine lacks: {missing}"
    )
