"""The report of a compile on a draft that it made of the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def draft_line(report: Mapping[str, Any]) -> str:
    """Its acceptance and predicted gain in one line; empty where none was made or measured."""
    draft = report.get("draft", {})
    found = draft.get("prediction")
    if found is None:
        return ""
    return (
        f"draft {draft['spec']}: accepted at {found['acceptance']:.0%} of places, with "
        f"{found['drafts']} drafts {found['tokens_per_pass']:.2f} tokens a pass, a draft step "
        f"{found['cost']:.2f} of the target's: predicted {found['gain']:.2f} times as fast"
    )


def draft_figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """The same for ``--json``, of all that were tried, without their passes."""
    draft = {key: value for key, value in report.get("draft", {}).items() if key != "passes"}
    return {"draft": draft} if draft else {}
