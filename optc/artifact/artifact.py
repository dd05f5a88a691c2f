"""`Artifact`: an opened, checked artifact folder."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from optc import registry
from optc.artifact.choose import Choice, choose_engine
from optc.artifact.files import ArtifactFiles
from optc.artifact.jsonio import read_json
from optc.artifact.manifest import (
    MANIFEST_NAME,
    REPORT_NAME,
    TOKENIZER_FILE,
    EngineEntry,
    Manifest,
    short_digest,
)
from optc.artifact.measured import measured_speeds
from optc.artifact.parse_manifest import parse_manifest
from optc.artifact.report import Report, read_report
from optc.artifact.tasks.shown import reason_against
from optc.artifact.tasks.task import SPEED
from optc.artifact.verify import check_files, contents_checked_beside
from optc.errors import ArtifactError, InputError, NoArtifactError, UnavailableError
from optc.system.foreign.file import read_file
from optc.system.hardware.machine import Machine, this_machine

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
                checks all the rest: the manifest, what each backend will take from it, and that
                every file is there with its length and none is opened that is not listed.

        Raises:
            NoArtifactError: There is no artifact.
            ArtifactError: Another format, a file missing or damaged, or a manifest that no compile
                wrote.
        """
        folder = Path(path)
        artifact = cls(folder, read_manifest(folder))
        artifact.files.check(artifact.manifest)
        for engine in artifact.manifest.engines:
            artifact._check_engine(engine)
        if verify == "full":
            check_files(folder, artifact.manifest.files)
        return artifact

    def _check_engine(self, engine: EngineEntry) -> None:
        """Check what the engine's backend will take from the manifest. An engine of a backend that
        is not installed cannot be loaded, so nothing of it is used."""
        try:
            backend = registry.backend(engine.backend)
        except InputError:
            return
        backend.check(engine, self.files.of_engine(engine))

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
    def files(self) -> ArtifactFiles:
        """Gives the paths of its files."""
        return ArtifactFiles(self.path, self.manifest.files)

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
            UnavailableError: None of them can be loaded; gives the reason against each. Or this
                optc does not know the task.
        """
        self.check_task()
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

    def check_task(self) -> None:
        """Check that this optc can use engines of the artifact's task.

        Raises:
            UnavailableError: It cannot; says what is not known and what is needed.
        """
        reason = reason_against(self.manifest.task)
        if reason:
            hint = f"install {self.manifest.compiled_by} that compiled it, or what brings the task"
            raise UnavailableError(reason, where=str(self.path), hint=hint)

    def measured_speeds(self, machine: Machine) -> dict[str, float]:
        """Speed by engine name where the report has one of such a machine (`measured_speeds`);
        empty where there is nothing to choose, or the report cannot be read."""
        if len(self.manifest.engines) < 2:
            return {}
        try:
            gates = self.manifest.task.of(SPEED)
            return measured_speeds(self.report(), self.manifest.engines, machine, gates)
        except ArtifactError:
            return {}

    def engine_folder(self, engine: EngineEntry) -> Path:
        """Folder of an engine's files, as `optc.backend.StepBackend.load` takes it."""
        return self.path / engine.folder

    def tokenizer_file(self) -> Path | None:
        """Path of ``tokenizer.json``, or None where the artifact has no tokenizer."""
        if self.manifest.tokenizer is None:
            return None
        return self.files.path(TOKENIZER_FILE, "the tokenizer")

    def chat_template(self) -> str:
        """Text of the chat template; empty where there is none.

        Raises:
            ArtifactError: It is not UTF-8.
        """
        tokenizer = self.manifest.tokenizer
        if tokenizer is None or not tokenizer.chat_template:
            return ""
        path = self.files.path(tokenizer.chat_template, "the tokenizer")
        try:
            return read_file(path).decode("utf-8")
        except OSError as error:
            raise ArtifactError(f"cannot be read: {error.strerror}", where=str(path)) from error
        except UnicodeDecodeError as error:
            raise ArtifactError(f"is not UTF-8: {error.reason}", where=str(path)) from error

    def report(self) -> Report:
        """Figures, timings and machine facts of the compile; empty where the file is gone. It is
        not part of the digest (`optc.artifact.report`).

        Raises:
            ArtifactError: The report is damaged.
        """
        path = self.path / REPORT_NAME
        return read_report(path) if os.path.lexists(path) else Report()

    def __repr__(self) -> str:
        manifest = self.manifest
        engines = ", ".join(f"{e.name} ({e.backend} for {e.target.name})" for e in manifest.engines)
        name, recipe = manifest.name, manifest.recipe.get("name")
        digest = short_digest(self.digest)
        return f"<optc.Artifact {str(self.path)!r}: {name}, {recipe}: {engines}; {digest}…>"

    def _repr_html_(self) -> str:
        from optc.system.notebook.tables import html_table, report_html  # only notebooks need it

        engines = [(e.name, e.role, e.backend, e.target.name) for e in self.manifest.engines]
        columns = ("engine", "role", "backend", "target")
        return html_table(repr(self), columns, engines) + report_html(self.report())


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an artifact folder, its own digest checked, its files not.

    Raises:
        NoArtifactError: The folder is missing or holds no manifest.
        ArtifactError: The manifest is damaged.
    """
    hint = "give the folder that optc compile wrote"
    if not folder.is_dir():
        problem = "is a file, not an artifact folder" if folder.exists() else "no such artifact"
        raise NoArtifactError(problem, where=str(folder), hint=hint)
    path = folder / MANIFEST_NAME
    if not os.path.lexists(path):
        raise NoArtifactError(f"holds no {MANIFEST_NAME}", where=str(folder), hint=hint)
    return parse_manifest(read_json(path), str(path))


def is_artifact(folder: Path) -> bool:
    """True for a folder that holds an artifact, damaged ones included. Other folders hold a
    ``manifest.json``, too: those of web applications and of extensions."""
    path = folder / MANIFEST_NAME
    if not path.is_file() or (folder / "engines").is_dir():
        return path.is_file()
    try:
        return {"format", "engines"} <= read_json(path).keys()
    except ArtifactError:
        return False
