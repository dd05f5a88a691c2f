"""What the docs quote is there, and what is there says which command gave it."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_results_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"benchmarks/results/([\w.*-]+)", page.read_text())
    assert [name for name in named if not list(RESULTS.glob(name))] == []


def test_every_result_is_in_the_table_of_commands() -> None:
    names = re.findall(r"`([\w.*-]+\.json)`", (ROOT / "benchmarks/README.md").read_text())
    quoted = [*names, "speculation.json"]  # has a section of its own
    files = [path.name for path in RESULTS.iterdir()]
    assert [file for file in files if not any(fnmatch(file, name) for name in quoted)] == []
    assert [name for name in names if not any(fnmatch(file, name) for file in files)] == []
