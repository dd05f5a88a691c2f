"""What a page is about: an artifact's manifest and report, and what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optc.artifact.jsonio import Fields
from optc.artifact.manifest import Manifest
from optc.report.measured import Measured


@dataclass(frozen=True)
class Subject:
    """An artifact.

    Attributes:
        manifest: Its manifest.
        report: Its report, as `optc.artifact.report.read_report` gives it.
        measured: A profile of its engine on this machine; None where there is none.
        not_measured: Why there is none.
    """

    manifest: Manifest
    report: Mapping[str, Any]
    measured: Measured | None = None
    not_measured: str = ""

    @property
    def fields(self) -> Fields:
        """The report, to be read key by key."""
        return Fields(self.report, "report.json")

    def evaluations(self) -> list[tuple[str, Fields]]:
        """Figures by engine: those of the engine itself, or of the model that it was lowered to."""
        if "evaluation" not in self.report:
            return []
        found = self.fields.child("evaluation")
        entries = []
        for name in found.values:
            own = found.child(name)
            if "lowered-onnx" in own.values:
                entries.append((f"{name} (on the lowered ONNX)", own.child("lowered-onnx")))
            if "tokens" in own.values:
                entries.append((name, own))
        return entries
