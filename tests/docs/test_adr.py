"""docs/adr: every decision has one form and a number of its own, and the README lists them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs/adr"
SECTIONS = ["Status", "Context", "Decision", "Consequences", "Evidence"]
MOST_LINES = 60
NAMES = sorted(path.name for path in FOLDER.glob("*.md") if path.name != "README.md")
#: The first sentence of a status; what is replaced in part only stays accepted, and says so behind.
STATUS = re.compile(r"(Accepted|Superseded by \[\d{4}\]\([^)]+\))\.(?=\s|$)")
TITLE = re.compile(r"# (\d{4}): (\S.*)")


def text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def title(name: str) -> re.Match[str]:
    found = TITLE.fullmatch(text(name).splitlines()[0])
    assert found, f"{name} begins with '# NNNN: Title'"
    return found


def status(name: str) -> str:
    found = STATUS.match(text(name).partition("\n## Status\n")[2])
    assert found, f"{name}: the status is 'Accepted.' or 'Superseded by [NNNN](file.md).'"
    return found[1]


def test_numbers_are_unique_and_without_gaps() -> None:
    numbers = [name[:4] for name in NAMES]
    assert numbers == [f"{number:04}" for number in range(1, len(NAMES) + 1)]


@pytest.mark.parametrize("name", NAMES)
def test_file_and_title_agree(name: str) -> None:
    assert re.fullmatch(r"\d{4}-[a-z0-9]+(-[a-z0-9]+)*\.md", name)
    assert title(name)[1] == name[:4]


@pytest.mark.parametrize("name", NAMES)
def test_sections_are_all_there_in_order(name: str) -> None:
    parts = re.split(r"^## (.*)\n", text(name), flags=re.M)
    assert parts[1::2] == SECTIONS
    assert all(part.strip() for part in parts[2::2]), "no section is empty"
    assert status(name)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_short(name: str) -> None:
    assert len(text(name).splitlines()) <= MOST_LINES


@pytest.mark.parametrize("name", [*NAMES, "README.md"])
def test_links_lead_to_files_and_numbers_to_theirs(name: str) -> None:
    prose = re.sub(r"`[^`]*`", "", text(name))
    for words, target in re.findall(r"\[([^\]]+)\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (FOLDER / target).is_file(), target
        if re.fullmatch(r"\d{4}", words):
            assert target.startswith(f"{words}-")


def test_the_readme_lists_every_decision() -> None:
    rows = [f"| [{n[:4]}]({n}) | {title(n)[2]} | {status(n)} |" for n in NAMES]
    table = "\n".join(["| number | decision | status |", "|---|---|---|", *rows])
    found = [line for line in text("README.md").splitlines() if line.startswith("|")]
    assert "\n".join(found) == table, f"the table of docs/adr/README.md is to be:\n{table}"
