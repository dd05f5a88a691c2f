"""One of the two things that are compared: an artifact, or what a command said of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Struct

from optc.artifact.artifact import Artifact
from optc.artifact.jsonio import read_json
from optc.artifact.manifest import Manifest
from optc.artifact.parse_manifest import parse_manifest
from optc.artifact.report import check_report
from optc.errors import InputError
from optc.system.foreign.typed_json import typed

_KINDS = "report.json of an artifact, or what optc compile --json or optc inspect --json printed"


class _Inspected(Struct, frozen=True):
    """The output of ``optc inspect --json``."""

    manifest: dict[str, Any]
    report: dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """The known facts of an artifact.

    Attributes:
        name: As it was given.
        report: `optc.artifact.report`; empty where the artifact has none.
        manifest: None where a report was given alone.
        artifact: None where there are no files.
        notes: What could not be read.
    """

    name: str
    report: Mapping[str, Any]
    manifest: Manifest | None = None
    artifact: Artifact | None = None
    notes: tuple[str, ...] = field(default=())


def open_subject(path: Path) -> Subject:
    """The artifact in a folder, all its files checked, or the report in a file.

    Raises:
        NoArtifactError: There is neither.
        ArtifactError: The artifact is damaged, or the report is.
        InputError: The file holds no report.
    """
    if path.is_file():
        return _of_file(path)
    artifact = Artifact.open(path)
    return Subject(str(path), artifact.report(), artifact.manifest, artifact)


def _of_file(path: Path) -> Subject:
    value = read_json(path)
    schema = value.get("schema")
    if schema == "optc.inspect.v1":
        found = typed(value, _Inspected, str(path))
        manifest = parse_manifest(found.manifest, str(path))
        return Subject(str(path), check_report(found.report, str(path)), manifest)
    if "gates" not in value:
        raise InputError("holds no report", where=str(path), hint=f"give an artifact, {_KINDS}")
    note = f"{path} is a report: it says nothing of recipe, versions and weights"
    return Subject(str(path), check_report(value, str(path)), notes=(note,))
