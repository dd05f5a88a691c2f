"""The subject of a page: an artifact's manifest and report, and what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from optc.artifact.manifest import Manifest
from optc.artifact.pages.measured import Measured
from optc.artifact.report_data import PassData
from optc.system.foreign.typed_json import typed

T = TypeVar("T")


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

    def part(self, key: str, kind: type[T], absent: T) -> T:
        """A part of the report; ``absent`` where it has none. Other parts may be damaged.

        Raises:
            ArtifactError: The part is not as a compile writes it.
        """
        value = self.report.get(key)
        return absent if value is None else typed(value, kind, f"report.json: {key}")

    @property
    def passes(self) -> tuple[PassData, ...]:
        """The passes that ran."""
        return self.part("passes", tuple[PassData, ...], ())

    def evaluations(self, kind: type[T]) -> list[tuple[str, T]]:
        """Figures by engine: those of the engine itself, or of the model that it was lowered to.

        Args:
            kind: Which of them; others may be damaged.
        """
        entries = []
        for name, own in self.part("evaluation", dict[str, dict[str, Any]], {}).items():
            where, lowered = f"report.json: evaluation: {name}", own.get("lowered-onnx")
            if lowered is not None:
                entries.append((f"{name} (on the lowered ONNX)", typed(lowered, kind, where)))
            if "tokens" in own:
                entries.append((name, typed(own, kind, where)))
        return entries
