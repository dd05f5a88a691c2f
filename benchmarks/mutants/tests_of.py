"""Which test files are run for a module: its mirrored one, and those that are named here."""

from __future__ import annotations

from pathlib import Path, PurePath

#: Tests of modules that are tested through others too, or only so.
TESTED_ELSEWHERE: dict[str, tuple[str, ...]] = {}


def mirrored_test(module: str) -> str:
    """``tests/a/test_b.py`` for ``optc/a/b.py`` and for ``a/b.py``."""
    path = PurePath(module)
    folders = path.parts[1:-1] if path.parts[0] == "optc" else path.parts[:-1]
    return str(PurePath("tests", *folders, f"test_{path.name}"))


def tests_of(root: Path, module: str) -> list[str]:
    """Test files of a module; none if nothing tests it."""
    mirrored = mirrored_test(module)
    own = [mirrored] if (root / mirrored).exists() else []
    return own + [test for test in TESTED_ELSEWHERE.get(module, ()) if test != mirrored]
