"""No folder of the project is a hall: at most twenty modules each (ADR 0091).

Nor does a room of the product grow without anybody noticing: each has a budget of lines (ADR 0160).
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
MOST = 20
#: Belong to the folder itself.
OWN = {"__init__.py", "__main__.py", "conftest.py"}
#: Where the product lies.
PARTS = ("optc", "passes", "backends")
#: Files of these kinds are code.
CODE = {".py", ".c", ".h", ".cu", ".cuh"}
#: Lines that a room may have, comments and blank ones too. A part itself has files that lie in no
#: room. Lower a number when a room has shrunk.
BUDGET = {
    "backends": 50,
    "backends/onnxruntime": 3_050,
    "backends/tensorrt": 3_700,
    "backends/tvm": 19_150,
    "backends/tvm_cuda": 5_000,
    "optc": 2_500,
    "optc/artifact": 2_850,
    "optc/bench": 2_150,
    "optc/cli": 8_250,
    "optc/conversations": 1_350,
    "optc/driver": 9_600,
    "optc/executable": 850,
    "optc/export": 2_400,
    "optc/families": 150,
    "optc/foreign": 250,
    "optc/forms": 600,
    "optc/gates": 3_650,
    "optc/importer": 8_950,
    "optc/ir": 4_200,
    "optc/judging": 1_150,
    "optc/lm_eval": 600,
    "optc/logs": 50,
    "optc/notebook": 150,
    "optc/openai": 400,
    "optc/options": 650,
    "optc/pipeline": 1_150,
    "optc/receipts": 500,
    "optc/reference": 4_350,
    "optc/report": 2_700,
    "optc/roofline": 750,
    "optc/runtime": 16_350,
    "optc/serve": 9_100,
    "optc/simulate": 1_200,
    "optc/speech": 500,
    "optc/sources": 1_100,
    "optc/store": 1_450,
    "optc/system": 450,
    "optc/tasks": 400,
    "optc/training": 2_550,
    "passes": 50,
    "passes/adapters": 300,
    "passes/canonicalize": 4_850,
    "passes/fuse": 950,
    "passes/general": 1_350,
    "passes/kv_cache": 1_750,
    "passes/prune": 4_350,
    "passes/quantize": 8_500,
}


def crowded(names: Iterable[str]) -> list[str]:
    """What to do about each folder that has too many modules."""
    paths = [PurePosixPath(name) for name in names]
    counts = Counter(
        str(path.parent) for path in paths if path.suffix == ".py" and path.name not in OWN
    )
    return [
        f"{folder} holds {count} modules, at most {MOST}: move some to a folder of one subject"
        for folder, count in sorted(counts.items())
        if count > MOST
    ]


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
    """A line for each room that is larger than its budget, or has none."""
    found = [
        f"{room} has {lines} lines, {lines - budget[room]} more than its budget of {budget[room]}"
        for room, lines in counts.items()
        if room in budget and lines > budget[room]
    ]
    found += [f"{room} has no budget" for room in sorted(counts.keys() - budget.keys())]
    return found + [f"there is no room {room}" for room in sorted(budget.keys() - counts.keys())]


def listed(*patterns: str) -> list[str]:
    """Files of the project that git lists, those that are new among them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in found.stdout.splitlines() if (ROOT / name).is_file()]


def test_a_folder_has_at_most_twenty_modules() -> None:
    names = listed("*.py")
    assert len({PurePosixPath(name).parent for name in names}) > 50, "git lists the folders"
    assert not (found := crowded(names)), "\n".join(found)


def test_what_is_counted() -> None:
    full = [f"optc/a/m{number}.py" for number in range(MOST)]
    beside = ["optc/a/__init__.py", "optc/a/notes.md", "optc/a/b/c.py", "optc/d.py"]
    assert crowded([*full, *beside]) == []
    assert crowded([*full, "optc/a/more.py"]) == [
        "optc/a holds 21 modules, at most 20: move some to a folder of one subject"
    ]


def test_no_room_has_more_lines_than_its_budget() -> None:
    counts = counted(listed(*PARTS))
    table = "\n".join(f'    "{room}": {lines:_},' for room, lines in counts.items())
    assert not (found := beyond(counts, BUDGET)), (
        "\n".join(found)
        + "\nfirst ask what can go; raising a number of BUDGET in this file is a line of the diff "
        + f"that is reviewed. The rooms are now:\n{table}"
    )


def test_which_lines_are_counted() -> None:
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
