"""`Artifact`: an opened, checked artifact folder."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from optc.artifact.choose import Choice, choose_engine
from optc.artifact.manifest import (
    MANIFEST_NAME,
    REPORT_NAME,
    EngineEntry,
    Manifest,
)
from optc.artifact.measured import measured_speeds
from optc.artifact.parse_manifest import parse_manifest
from optc.artifact.verify import check_files, contents_checked_beside
from optc.errors import ArtifactError
from optc.machine import Machine, this_machine

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
            verify: ``full`` hashes every file on all usable threads; ``size`` trusts contents and
                checks only that every file is there with its length.

        Raises:
            ArtifactError: Not an artifact, another format, or a file missing or damaged.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        check_files(folder, manifest.files, contents=verify == "full")
        return cls(folder, manifest)

    def contents_checked(self, verify: Verify) -> AbstractContextManager[None]:
        """Do what ``open(path, verify)`` does beyond ``open(path, "size")`` beside the body of a
        ``with``, at whose end all files are checked; those of less than 16 MiB are before it.

        Raises:
            ArtifactError: A file is damaged; in place of what the body raises.
        """
        if verify == "size":
            return nullcontext()
        return contents_checked_beside(self.path, self.manifest.files)

    @property
    def digest(self) -> str:
        """sha256 in hex that identifies the artifact."""
        return self.manifest.digest

    def engine(self, name: str | None = None) -> EngineEntry:
        """The target engine that suits this machine best, or the one called ``name``.

        Raises: as `choose`.
        """
        return self.choose(name=name).entry

    def choose(
        self,
        role: str = "target",
        *,
        name: str | None = None,
        beside: EngineEntry | None = None,
        machine: Machine | None = None,
    ) -> Choice:
        """The engine of ``role`` to load, and why not the others (`choose_engine`).

        Raises:
            InputError: The artifact has no engine of that role or name.
            UnavailableError: None of them can be loaded; gives the reason against each.
        """
        here = this_machine() if machine is None else machine
        return choose_engine(
            self.manifest.engines,
            str(self.path),
            role=role,
            name=name,
            beside=beside,
            machine=here,
            speeds=self.measured_speeds(here) if name is None else None,
        )

    def measured_speeds(self, machine: Machine) -> dict[str, float]:
        """Speed by engine name where the report has one of such a machine (`measured_speeds`);
        empty where there is nothing to choose, or the report cannot be read."""
        if len(self.manifest.engines) < 2:
            return {}
        try:
            return measured_speeds(self.report(), self.manifest.engines, machine)
        except ArtifactError:
            return {}

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
