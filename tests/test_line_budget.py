"""No room of the product grows without anybody noticing: each has a budget of lines (ADR 0160)."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("optc", "passes", "backends")
#: Files of these kinds are code.
CODE = {".py", ".c", ".h", ".cu", ".cuh"}
#: Lines that a room may have, comments and blank ones too. Files that lie in no room are in
#: ``optc`` itself. Lower a number when a room has shrunk.
BUDGET: dict[str, int] = {}


def room_of(name: str) -> str:
    """The room of a file: a folder of the first or second level."""
    parts = PurePosixPath(name).parts
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def counted(names: Iterable[str]) -> dict[str, int]:
    """Lines of code by room."""
    found: Counter[str] = Counter()
    for name in names:
        if PurePosixPath(name).suffix in CODE:
            found[room_of(name)] += len((ROOT / name).read_text(encoding="utf-8").splitlines())
    return dict(sorted(found.items()))


def beyond(counts: Mapping[str, int], budget: Mapping[str, int]) -> list[str]:
    """What to do about each room that is larger than its budget, and about each that has none."""
    found = [
        f"{room} has {lines} lines, {lines - budget[room]} more than its budget of {budget[room]}"
        for room, lines in counts.items()
        if room in budget and lines > budget[room]
    ]
    found += [f"{room} has no budget" for room in sorted(counts.keys() - budget.keys())]
    return found + [f"there is no room {room}" for room in sorted(budget.keys() - counts.keys())]


def test_no_room_has_more_lines_than_its_budget() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PARTS]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    counts = counted(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())
    table = "\n".join(f'    "{room}": {lines:_},' for room, lines in counts.items())
    assert not (found := beyond(counts, BUDGET)), (
        "\n".join(found)
        + "\nfirst ask what can go; raising a number of BUDGET in this file is a line of the diff "
        + f"that is reviewed. The rooms are now:\n{table}"
    )


def test_what_is_counted() -> None:
    names = ["optc/units.py", "optc/forms/find.py", "optc/forms/form.py", "optc/py.typed"]
    counts = counted(names)
    assert list(counts) == ["optc", "optc/forms"]
    assert counts["optc"] == len((ROOT / "optc/units.py").read_text().splitlines())
    assert room_of("backends/tvm/kernels/dsl/script.py") == "backends/tvm"


def test_a_room_beyond_its_budget_without_one_or_gone_is_told() -> None:
    assert beyond({"a": 5, "b": 3}, {"a": 5, "b": 4}) == []
    assert beyond({"a": 6, "b": 3}, {"a": 5, "c": 1}) == [
        "a has 6 lines, 1 more than its budget of 5",
        "b has no budget",
        "there is no room c",
    ]
