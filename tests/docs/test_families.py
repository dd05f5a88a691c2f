"""README's number of families is that of the page that a survey wrote."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_readme_names_as_many_types_as_the_survey_found() -> None:
    page = (ROOT / "docs/families.md").read_text(encoding="utf-8")
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    equal = re.search(r"\| tokens equal \| (\d+) \|", page)
    decoders = re.search(r"There are (\d+) decoders", page)
    assert equal is not None
    assert decoders is not None
    assert f"{equal[1]} of transformers' {decoders[1]} types of decoders" in readme
