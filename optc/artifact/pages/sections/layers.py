"""Fidelity by layer: how far below the signal the error of each layer's hidden state lies."""

from __future__ import annotations

from collections.abc import Sequence

from optc.artifact.pages.charts.levels import levels
from optc.artifact.pages.components import Column, Section, figure, numbers, paragraph, table
from optc.artifact.pages.markup import element
from optc.artifact.pages.numbers import number
from optc.artifact.pages.sections.subject import Subject
from optc.artifact.report_data import BisectData
from optc.system.foreign.typed_json import typed

_SQNR = (
    "The signal-to-quantization-noise ratio of the hidden state behind each layer, against the "
    "float32 model: 20 dB is an error of a tenth, 40 dB of a hundredth. A layer below its "
    "neighbours is where to look first."
)
_FACT = "report.json: block_sqnr_db"


def layers(subject: Subject) -> Section:
    """SQNR of each layer, where a compile measured it, or how to have it measured."""
    title = "Fidelity by layer"
    values, source = _values(subject)
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


def _values(subject: Subject) -> tuple[Sequence[float | None], str]:
    """dB by layer, and where they come from."""
    bisect = subject.part("bisect", BisectData, BisectData(()))
    if any(value is not None for value in bisect.sqnr_by_layer):
        return bisect.sqnr_by_layer, "Measured after all passes, by --bisect."
    for entry in subject.passes:
        if entry.facts and "block_sqnr_db" in entry.facts:
            source = f"Measured on the calibration text by the pass {entry.name}."
            return typed(entry.facts["block_sqnr_db"], list[float | None], _FACT), source
    return (), ""
