"""No folder of the project is a hall: at most twenty modules each."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
MOST = 20
#: Belong to the folder itself.
OWN = {"__init__.py", "__main__.py", "conftest.py"}


def test_a_folder_has_at_most_twenty_modules() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [PurePosixPath(name) for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    counts = Counter(str(path.parent) for path in paths if path.name not in OWN)
    assert len(counts) > 50, "git lists the project's folders"
    assert {name: count for name, count in counts.items() if count > MOST} == {}
