"""``report.json``: what a compile measured. It is not part of an artifact's digest.

A load takes nothing from it but speeds, a hint for choosing among engines, so a damaged one does
not make the artifact unusable; who asks for it is told. Checked are the parts that commands show.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optc.artifact.jsonio import read_json
from optc.artifact.report_data import ReportData
from optc.system.foreign.typed_json import typed


class Report(dict[str, Any]):
    """A report as it was written; a notebook shows its gates and passes."""

    def __repr__(self) -> str:
        gates, passes = (len(self.get(key, ())) for key in ("gates", "passes"))
        return f"<optc.Report {gates} gates, {passes} passes: {', '.join(sorted(self)) or 'empty'}>"

    def _repr_html_(self) -> str:
        from optc.system.notebook.tables import report_html  # only notebooks need it

        return report_html(self)


def read_report(path: Path) -> Report:
    """The report in a file.

    Raises:
        ArtifactError: It is not JSON, or what commands show of it (`ReportData`) is not as a
            compile writes it.
    """
    return check_report(read_json(path), str(path))


def check_report(value: Mapping[str, Any], where: str) -> Report:
    """A report that was read from the file ``where``; raises as `read_report`."""
    typed(value, ReportData, where)
    return Report(value)
