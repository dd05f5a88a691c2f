"""Prints the test files of what differs from a commit: ``python -m tests.changed [COMMIT]``.

Of a changed module these are the tests of `tests.support.tests_of`; of a changed test file itself.
Files that git does not know yet count as changed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.tests_of import tests_of

ROOT = Path(__file__).parents[1]


def main(arguments: list[str]) -> int:
    """Print the files, one a line; 2 where git knows no such commit."""
    base = arguments[0] if arguments else "HEAD"
    try:
        paths = changed_paths(ROOT, base)
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip(), file=sys.stderr)
        return 2
    print("\n".join(tests_for(ROOT, paths)))
    return 0


def changed_paths(root: Path, base: str) -> list[str]:
    """Files that differ from ``base`` or are new, relative to ``root``."""
    commands = (
        ("git", "diff", "--name-only", "--diff-filter=d", base),
        ("git", "ls-files", "--others", "--exclude-standard"),
    )
    found: list[str] = []
    for command in commands:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        found += done.stdout.splitlines()
    return found


def tests_for(root: Path, paths: Iterable[str]) -> list[str]:
    """Their test files that exist, each once, in order."""
    found: set[str] = set()
    for path in paths:
        name = Path(path).name
        if path.startswith("tests/") and name.startswith("test_") and name.endswith(".py"):
            found.add(path)
        elif path.endswith(".py") and not path.startswith("tests/"):
            found.update(tests_of(root, path))
    return sorted(test for test in found if (root / test).is_file())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
