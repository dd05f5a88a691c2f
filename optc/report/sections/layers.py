"""Fidelity by layer: how far below the signal the error of each layer's hidden state lies."""

from __future__ import annotations

from optc.artifact.jsonio import Fields
from optc.report.charts.levels import levels
from optc.report.components import Column, Section, figure, numbers, paragraph, table
from optc.report.markup import element
from optc.report.numbers import number
from optc.report.sections.subject import Subject

_SQNR = (
    "The signal-to-quantization-noise ratio of the hidden state behind each layer, against the "
    "float32 model: 20 dB is an error of a tenth, 40 dB of a hundredth. A layer below its "
    "neighbours is where to look first."
)


def layers(subject: Subject) -> Section:
    """SQNR of each layer, where a compile measured it, or how to have it measured."""
    title = "Fidelity by layer"
    values, source = _values(subject.fields)
    if not any(value is not None for value in values):
        body = paragraph(
            "Not measured: ",
            element("code", "optc compile --bisect"),
            " runs the model after every pass and records the error behind each layer.",
        )
        return Section("layers", title, (body,))
    chart = levels("layers-plot", "SQNR by layer", _SQNR, values, "dB")
    rows = [(str(index), number(value)) for index, value in enumerate(values)]
    beside = table([Column("layer"), *numbers("SQNR, dB")], rows)
    body = figure(chart, f"{_SQNR} {source}", beside)
    return Section("layers", title, (body,), chart)


def _values(report: Fields) -> tuple[list[float | None], str]:
    """dB by layer, and where they come from."""
    if report.values.get("bisect") is not None:
        found = _numbers(report.child("bisect"), "sqnr_by_layer")
        if any(value is not None for value in found):
            return found, "Measured after all passes, by --bisect."
    for entry in report.children("passes") if "passes" in report.values else []:
        facts = entry.child("facts") if entry.values.get("facts") else None
        if facts is not None and "block_sqnr_db" in facts.values:
            source = f"Measured on the calibration text by the pass {entry.get('name', str)}."
            return _numbers(facts, "block_sqnr_db"), source
    return [], ""


def _numbers(f: Fields, key: str) -> list[float | None]:
    listed = f.get(key, list)
    each = Fields(dict(enumerate(listed)), f"{key}")
    return [each.number(index) for index in each.values]
