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
_now = {"subject": False, "passes": False}


def begin(item: pytest.Item) -> None:
    """Compile as this test wants it from now on."""
    marked = any(item.get_closest_marker(name) for name in ("native", "long"))
    inside = any(item.path.is_relative_to(folder) for folder in FOLDERS)
    _now["subject"] = marked or inside


def engines_are_subject() -> bool:
    """True while such a test runs."""
    return _now["subject"]


def have_passes() -> bool:
    """True while LLVM's passes are to run over kernels."""
    return _now["subject"] or _now["passes"]


@contextmanager
def with_passes() -> Iterator[None]:
    """Compile what tests run for long, or compare the bits of, with LLVM's passes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_now, "passes", True)
        yield
