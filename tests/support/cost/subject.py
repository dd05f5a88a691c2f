"""Engines are the subject of some tests, and a means of most.

Tests of backends, long tests, and tests with the marker ``native`` have them as they are for users.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: Folders of tests whose subject engines are.
FOLDERS = tuple(Path(__file__).parents[2] / name for name in ("amx", "arm", "backends"))
_now = {"subject": False}


def begin(item: pytest.Item) -> None:
    """Compile as this test wants it from now on."""
    marked = any(item.get_closest_marker(name) for name in ("native", "long"))
    inside = any(item.path.is_relative_to(folder) for folder in FOLDERS)
    _now["subject"] = marked or inside


def engines_are_subject() -> bool:
    """True while such a test runs."""
    return _now["subject"]


@contextmanager
def as_subject() -> Iterator[None]:
    """Compile what many tests run, or compare the bits of, as for users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_now, "subject", True)
        yield
