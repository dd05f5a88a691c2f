"""What suites of others may find wrong: a list in a file, each entry with its reason."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class Expected:
    """Cases that may fail.

    Attributes:
        cases: Patterns of their names.
        says: What their messages have in them.
        reason: Why that is right.
    """

    cases: tuple[str, ...]
    says: str
    reason: str


def read_expected(name: str) -> list[Expected]:
    """The list in a file of this folder."""
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return [
        Expected(tuple(one["cases"]), one["says"], one["reason"])
        for one in tomllib.loads(text)["expected"]
    ]


def differing(failed: Mapping[str, str], expected: list[Expected]) -> list[str]:
    """In which a suite differs from its list: failures that are not on it, entries without one.

    Args:
        failed: Messages by the names of the cases.
        expected: The list.
    """
    used: set[tuple[Expected, str]] = set()
    found = []
    for case, message in failed.items():
        meant = [
            (one, pattern)
            for one in expected
            for pattern in one.cases
            if fnmatchcase(case, pattern) and one.says in message
        ]
        used |= set(meant)
        if not meant:
            found.append(f"{case}: {message[:300]}")
    return found + [
        f"nothing fails as {pattern!r} any more"
        for one in expected
        for pattern in one.cases
        if (one, pattern) not in used
    ]
