"""Tables for notebooks: what ``_repr_html_`` of results, plans, reports and artifacts gives.

Texts come from models and artifacts: all of them are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

#: Most rows of a table.
_MOST_ROWS = 200
#: What is shown of the predictions of a ladder.
_PREDICTED = ("decode_tokens_per_s", "prefill_tokens_per_s", "artifact_bytes", "memory_bytes")


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a caption.

    Args:
        title: The caption.
        columns: Headings; empty shows none.
        rows: Cells: texts, numbers, None, or anything that has a text.
    """
    listed = list(rows)
    head = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in columns)}</tr>" if columns else ""
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in listed[:_MOST_ROWS])
    left = len(listed) - _MOST_ROWS
    if left > 0:
        body += f"<tr><td>… and {left} more</td></tr>"
    return f"<table><caption>{escape(title)}</caption>{head}{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = "-" if value is None else str(value)
        return f'<td style="text-align:left;white-space:pre-wrap">{escape(text)}</td>'
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f'<td style="text-align:right">{text}</td>'


def gates_html(gates: Iterable[Mapping[str, Any]]) -> str:
    """The verdicts of a report."""
    rows = [
        (gate.get("engine"), gate["name"], gate["value"], gate["bound"], _verdict(gate["passed"]))
        for gate in gates
    ]
    return html_table("gates", ("engine", "gate", "value", "bound", "verdict"), rows)


def _verdict(passed: bool | None) -> str:
    return {True: "passed", False: "failed", None: "open"}[passed]


def report_html(report: Mapping[str, Any]) -> str:
    """The parts of a compile's report that commands show: gates and passes."""
    passes = [(one["name"], one["count"], one["seconds"]) for one in report.get("passes", ())]
    shown = html_table("passes", ("pass", "changes", "seconds"), passes)
    return gates_html(report.get("gates", ())) + shown


def plan_html(plan: Mapping[str, Any]) -> str:
    """A plan, as its JSON object has it."""
    numbers = [(name, plan[name]) for name in plan if isinstance(plan[name], str | int)]
    engines = [
        (engine["name"], *engine["counts"].values(), engine["unavailable"])
        for engine in plan["engines"]
    ]
    columns = ("engine", "native", "decomposed", "unsupported", "cannot be built here")
    title = f"{plan['model']}, {plan['recipe']}"
    return html_table(title, (), numbers) + html_table("engines", columns, engines)


def ladder_html(model: str, ladder: Mapping[str, Any]) -> str:
    """The rungs of a ladder, as reports have it."""
    rows = [
        (
            rung["recipe"],
            *(rung.get("predicted", {}).get(key) for key in _PREDICTED),
            rung["outcome"],
            rung["why"],
        )
        for rung in ladder["rungs"]
    ]
    title = f"{model}, ladder for {ladder['objective']}"
    return html_table(title, ("recipe", *_PREDICTED, "outcome", "why"), rows)
