"""Size: what the bytes of the weights are spent on, and the files."""

from __future__ import annotations

from optc.report.charts.bars import Bar, bars
from optc.report.components import Column, Section, figure, numbers, paragraph, table
from optc.report.markup import Element, Node, element
from optc.report.numbers import count, number, percent
from optc.report.sections.subject import Subject
from optc.units import byte_text

_NONE = "What the weights are spent on is not in the report: it is of an older compile."


def sizes(subject: Subject) -> Section:
    """Bytes by kind of tensor, and of each file."""
    entries = subject.fields.children("tensors") if "tensors" in subject.report else []
    chart: Element | None = None
    body: list[Node] = [paragraph(_NONE)]
    if entries:
        read = [
            (
                f.get("kind", str),
                *(f.count(k, 0, 2**62) for k in ("tensors", "bytes", "scale_bytes")),
            )
            for f in entries
        ]
        total = sum(size for _, _, size, _ in read)
        drawn = [
            Bar(kind, size, byte_text(size), min(beside, size)) for kind, _, size, beside in read
        ]
        scales = sum(beside for _, _, _, beside in read)
        caption = (
            f"Weights take {byte_text(total)} as the recipe stores them, "
            f"{percent(scales / total if total else None, 2)} of it for scales, zero points and "
            "biases, which are drawn lighter. An engine may lay them out otherwise."
        )
        chart = bars("sizes-plot", "Bytes of the weights by kind", caption, drawn)
        rows = [
            (kind, count(tensors), byte_text(size), percent(size / total if total else None))
            for kind, tensors, size, _ in read
        ]
        columns = [Column("weights"), *numbers("tensors", "bytes", "share")]
        body = [figure(chart, caption, table(columns, rows))]
    body += _formats(subject)
    body += [element("h3", "Files"), _files(subject)]
    return Section("size", "Size", tuple(body), chart)


def _formats(subject: Subject) -> list[Node]:
    """The format of each weight and what it loses, where a pass chose them."""
    passes = subject.fields.children("passes") if "passes" in subject.report else []
    chosen = [f.child("facts") for f in passes if f.values.get("name") == "allocate-bits"]
    if not chosen or "tensors" not in chosen[0].values:
        return []
    facts = chosen[0]
    rows = [
        (
            f.get("tensors", str),
            f.get("format", str),
            number(f.number("bits")),
            number(f.number("kl")),
            "measured" if f.get("measured", bool) else "from its error",
        )
        for f in facts.children("tensors")
    ]
    caption = f"Chosen within {facts.get('budget', str)}; reached: {facts.get('reached', str)}"
    columns = [Column("format"), *numbers("bits", "KL alone"), Column("which was")]
    shown = table([Column("weights", "code"), *columns], rows, caption)
    return [element("h3", "Formats"), shown]


def _files(subject: Subject) -> Element:
    files = sorted(subject.manifest.files, key=lambda entry: -entry.bytes)
    rows = [(entry.path, byte_text(entry.bytes), entry.sha256) for entry in files]
    return table([Column("file", "code"), *numbers("bytes"), Column("sha256", "code")], rows)
