"""The waterfall as bars, for the README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optc.artifact.pages.charts.bars import Bar, bars
from optc.artifact.pages.components import Section
from optc.artifact.pages.numbers import number
from optc.artifact.pages.page import svg_file

COLUMNS = {
    "one": ("One sequence", "tokens/s of requests one after the other"),
    "sixteen": ("Sixteen sequences", "tokens/s of all requests, sixteen at once"),
}


def picture(model: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """An SVG file: for one and for sixteen sequences a bar for each step; the lighter part is what
    the step added.

    Args:
        model: Its name.
        rows: In order, each with ``step``, ``one``, ``sixteen`` (tokens/s), ``mb`` and ``kl``.
    """
    return svg_file([_section(model, rows, name) for name in COLUMNS])


def _section(model: str, rows: Sequence[Mapping[str, Any]], name: str) -> Section:
    title, text = COLUMNS[name]
    before = [0.0, *(row[name] for row in rows[:-1])]
    drawn = [
        Bar(row["step"], row[name], _figure(row, name), max(0.0, row[name] - last))
        for row, last in zip(rows, before, strict=True)
    ]
    chart = bars(f"waterfall-{name}", f"{model}: {title}", text, drawn)
    return Section(name, f"{model}: {title.lower()}, {text}", (chart,), chart)


def _figure(row: Mapping[str, Any], name: str) -> str:
    return f"{number(row[name], 3)} tok/s, {row['mb']:.0f} MB, KL {row['kl']:.2g}"
