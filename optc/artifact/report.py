"""``report.json``: what a compile measured. It is not part of an artifact's digest.

A load takes nothing from it but speeds, a hint for choosing among engines, so a damaged one does
not make the artifact unusable; who asks for it is told. Checked are the parts that commands show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.artifact.jsonio import Fields, read_json


def read_report(path: Path) -> dict[str, Any]:
    """The report in a file.

    Raises:
        ArtifactError: It is not JSON, or its passes or gates are not as a compile writes them.
    """
    report = read_json(path)
    fields = Fields(report, str(path))
    if "passes" in report:
        for entry in fields.children("passes"):
            _check_pass(entry)
    if "gates" in report:
        for entry in fields.children("gates"):
            _check_gate(entry)
    if "verified" in report:
        fields.each("verified", dict)
    return report


def _check_pass(f: Fields) -> None:
    f.get("name", str)
    f.count("count")
    if f.number("seconds") is None:
        raise f.error("the key 'seconds' is null or missing")
    f.optional("details", dict)


def _check_gate(f: Fields) -> None:
    f.get("name", str)
    f.require("value", "bound", "passed")
    f.number("value")
    f.number("bound")
    f.optional("passed", bool)
    f.get("measured_on", str)
    for key in ("reason", "engine"):
        f.optional(key, str)
