"""Figures of decisions out of a report: what gates found where a model acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Where figures of a model stand that an engine was lowered to.
_LOWERED = "lowered-onnx"


def decisions_of(evaluation: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Figures of decisions by engine; engines without any are left out.

    Args:
        evaluation: Of a report.
    """
    found = {}
    for engine, figures in evaluation.items():
        own = figures if "answers" in figures else figures.get(_LOWERED, {})
        decisions = own.get("answers", {}).get("decisions")
        if decisions:
            found[engine] = decisions
    return found
