"""What the docs quote is there, and what is there says which command gave it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
TABLE = RESULTS / "README.md"
SUBJECTS = sorted(set(RESULTS.glob("*.md")) - {TABLE})
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md"), TABLE, *SUBJECTS]
)
DATE = r"\b20\d\d-\d\d-\d\d\b"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_results_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"benchmarks/results/([\w.*-]+)", page.read_text())
    assert [name for name in named if not list(RESULTS.glob(name))] == []


@pytest.mark.parametrize("page", [TABLE, *SUBJECTS], ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text())
    assert [link for link in links if not (RESULTS / link).exists()] == []


def test_every_result_has_its_command_machine_and_date() -> None:
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert all(len(row) == 4 and all(row) and re.fullmatch(DATE, row[3]) for row in cells)
    named = [name for row in cells for name in re.findall(r"`([\w.-]+\.json)`", row[0])]
    assert sorted(named) == sorted(path.name for path in RESULTS.glob("*.json"))


@pytest.mark.parametrize("page", SUBJECTS, ids=lambda page: page.name)
def test_a_page_states_command_machine_and_date(page: Path) -> None:
    text = page.read_text()
    head = dict(re.findall(r"^\| (command|machine|date) \| (.+) \|$", text, re.MULTILINE))
    assert set(head) == {"command", "machine", "date"}
    assert re.search(DATE, head["date"])
    assert f"({page.name})" in TABLE.read_text(), "in no list of pages"
