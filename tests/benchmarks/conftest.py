"""Tests of benchmarks, which no user runs, take long: `make test-long` runs them.

Those that hold pages and results together are quick, and belong to all."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
QUICK = ("test_results.py", "test_commands.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.name not in QUICK:
            item.add_marker(pytest.mark.long)
