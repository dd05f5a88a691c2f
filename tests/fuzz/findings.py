"""Findings on disk: the smallest input that gives each, and how to run it again."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.fuzz.form import Draw, FileFormat, Format, Materials, write_files
from tests.fuzz.formats import FORMATS
from tests.fuzz.hunt import LIMIT_S, Finding, Tally, smallest
from tests.fuzz.outcome import Outcome
from tests.fuzz.whole import WholeTally

_NOTE = "finding.json"


def save_findings(
    form: Format[Any], tally: Tally, folder: Path, seed: int, *, limit_s: float = LIMIT_S
) -> list[dict[str, Any]]:
    """Write every finding's smallest input into a folder of its own.

    Returns:
        For each what it is, how often it was found, and its folder's name; the most frequent first.
    """
    found = sorted(tally.findings.values(), key=lambda finding: -finding.count)
    listed = []
    for number, finding in enumerate(found):
        name = _folder_name(form.name, number, finding)
        draw = smallest(form, finding, limit_s=limit_s)
        write_files(
            folder / name, {**form.shown(form.make(draw)), _NOTE: _note(form, finding, draw, seed)}
        )
        listed.append({**_what(finding.outcome), "count": finding.count, "saved": name})
    return listed


def _note(form: Format[Any], finding: Finding, draw: Draw, seed: int) -> bytes:
    note = {"format": form.name, "seed": seed, "draw": asdict(draw), **asdict(finding.outcome)}
    return json.dumps(note, indent=1).encode()


def save_whole(
    tally: WholeTally, materials: Materials, folder: Path, seed: int
) -> list[dict[str, Any]]:
    """The same for whole commands, whose inputs stay as they are."""
    listed = []
    for number, (command, draw, outcome) in enumerate(tally.findings):
        name = f"whole-{number:02}-{command.name}-{command.format}"
        form = FORMATS[command.format]()
        assert isinstance(form, FileFormat)
        form.samples = form.read(materials)
        note = _note(form, Finding(outcome, draw), draw, seed)
        write_files(folder / name, {**form.make(draw), _NOTE: note})
        listed.append(
            {"command": command.name, "format": form.name, "saved": name, **_what(outcome)}
        )
    return listed


def _what(outcome: Outcome) -> dict[str, str]:
    return {"kind": outcome.kind, "what": outcome.what, "where": outcome.where}


def read_draw(folder: Path) -> tuple[str, Draw]:
    """The format and the input of a finding that `save_findings` wrote."""
    note = json.loads((folder / _NOTE).read_text())
    return note["format"], Draw(note["draw"]["sample"], tuple(note["draw"]["edits"]))


def _folder_name(form: str, number: int, finding: Finding) -> str:
    return f"{form}-{number:02}-{re.sub('[^A-Za-z0-9]+', '-', finding.outcome.what)}"
