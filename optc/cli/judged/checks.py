"""Verdicts as the checks of a summary and as the tables of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optc.cli.output import figure, table
from optc.proof.conditions.condition import figure_text
from optc.proof.conditions.summary import Check, Figures
from optc.proof.conditions.verdicts import Verdict

if TYPE_CHECKING:
    from rich.table import Table

#: Digits of figures in tables and summaries.
_DIGITS = 5


def condition_checks(verdicts: Iterable[Verdict]) -> list[Check]:
    """A check a verdict on a condition."""
    return [
        Check("conditions", _named(verdict), verdict.passed, verdict.reason or _detail(verdict))
        for verdict in verdicts
    ]


def gate_checks(gates: Sequence[Mapping[str, Any]], *, strict: bool) -> list[Check]:
    """A check a gate that has a bound.

    Args:
        gates: As of a report.
        strict: A gate without a verdict is one that failed.
    """
    return [
        Check(
            f"gates of {gate.get('engine', 'target')}",
            gate["name"],
            False if strict and gate["passed"] is None else gate["passed"],
            gate.get("reason") or f"{figure(gate['value'])}, bound {figure(gate['bound'])}",
        )
        for gate in gates
        if gate["bound"] is not None
    ]


def gate_figures(gates: Sequence[Mapping[str, Any]]) -> list[Figures]:
    """The gates that are only reported."""
    rows = [
        (gate.get("engine", "target"), gate["name"], figure(gate["value"], _DIGITS))
        for gate in gates
        if gate["bound"] is None and gate["value"] is not None
    ]
    return [Figures("reported", ("engine", "figure", "value"), rows)] if rows else []


def rich_table(figures: Figures) -> Table:
    """A table of figures for the terminal."""
    rows = table(figures.title, *figures.columns)
    for row in figures.rows:
        rows.add_row(*row)
    return rows


def conditions_figures(verdicts: Sequence[Verdict]) -> list[Figures]:
    """The verdicts as a table; none where there are no conditions."""
    if not verdicts:
        return []
    rows = [
        (
            _named(v),
            *(figure_text(v.metric, number, _DIGITS) for number in (v.value, v.baseline, v.bound)),
            "passed" if v.passed else "FAILED",
        )
        for v in verdicts
    ]
    columns = ("condition", "value", "baseline", "bound", "verdict")
    return [Figures("conditions", columns, rows)]


def _named(verdict: Verdict) -> str:
    """The condition, with its case where it states none."""
    if not verdict.case or f"@{verdict.case}" in verdict.condition.replace(" ", ""):
        return verdict.condition
    return f"{verdict.condition} @{verdict.case}"


def _detail(verdict: Verdict) -> str:
    value, bound, baseline = (
        figure_text(verdict.metric, number, _DIGITS)
        for number in (verdict.value, verdict.bound, verdict.baseline)
    )
    text = f"{value}, bound {bound}"
    return text if verdict.baseline is None else f"{text}, baseline {baseline}"
