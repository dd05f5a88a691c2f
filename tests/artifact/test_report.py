"""Reports that are damaged: tests/cli/test_output.py."""

from __future__ import annotations

import json
from pathlib import Path

from optc.artifact.report import read_report


def test_parts_that_no_command_shows_are_as_they_are(tmp_path: Path) -> None:
    report = {"seconds": 1.5, "machine": [1, {"x": None}], "passes": [], "verified": [{}]}
    (tmp_path / "r").write_text(json.dumps(report))
    assert read_report(tmp_path / "r") == report
