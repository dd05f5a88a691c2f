"""docs/families.md from the survey's results."""

from __future__ import annotations

from typing import Any


def page(content: dict[str, Any]) -> str:
    """The page."""
    return str(content)
