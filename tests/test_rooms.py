"""No folder of the project is a hall: at most twenty modules each (ADR 0091)."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
MOST = 20
#: Belong to the folder itself.
OWN = {"__init__.py", "__main__.py", "conftest.py"}


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


def test_a_folder_has_at_most_twenty_modules() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    assert len({PurePosixPath(name).parent for name in names}) > 50, "git lists the folders"
    assert not (found := crowded(names)), "\n".join(found)


def test_what_is_counted() -> None:
    full = [f"optc/a/m{number}.py" for number in range(MOST)]
    beside = ["optc/a/__init__.py", "optc/a/notes.md", "optc/a/b/c.py", "optc/d.py"]
    assert crowded([*full, *beside]) == []
    assert crowded([*full, "optc/a/more.py"]) == [
        "optc/a holds 21 modules, at most 20: move some to a folder of one subject"
    ]
