"""Size: what the bytes of the weights are spent on, and the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optc.artifact.jsonio import Fields
from optc.foreign.typed_json import MAX_INT
from optc.report.charts.bars import Bar, bars
from optc.report.components import Column, Section, figure, numbers, paragraph, table
from optc.report.markup import Element, Node, element
from optc.report.numbers import count, number, percent
from optc.report.sections.subject import Subject
from optc.units import byte_text

_NONE = "What the weights are spent on is not in the report: it is of an older compile."


@dataclass(frozen=True)
class _Kind:
    """Weights of a kind, and the bytes among theirs of scales, zero points and biases."""

    name: str
    tensors: int
    bytes: int
    beside: int

    @staticmethod
    def read(f: Fields) -> _Kind:
        tensors, size, beside = (
            f.count(key, 0, MAX_INT) for key in ("tensors", "bytes", "scale_bytes")
        )
        return _Kind(f.get("kind", str), tensors, size, beside)


def _entries(subject: Subject) -> list[Fields]:
    return subject.fields.children("tensors") if "tensors" in subject.report else []


def _of(part: int, total: int) -> float | None:
    return part / total if total else None


def _caption(kinds: Sequence[_Kind], total: int) -> str:
    share = percent(_of(sum(kind.beside for kind in kinds), total), 2)
    return (
        f"Weights take {byte_text(total)} as the recipe stores them, {share} of it for scales, "
        "zero points and biases, which are drawn lighter. An engine may lay them out otherwise."
    )


def sizes(subject: Subject) -> Section:
    """Bytes by kind of tensor, and of each file."""
    kinds = [_Kind.read(f) for f in _entries(subject)]
    chart: Element | None = None
    body: list[Node] = [paragraph(_NONE)]
    if kinds:
        total = sum(kind.bytes for kind in kinds)
        caption = _caption(kinds, total)
        drawn = [Bar(k.name, k.bytes, byte_text(k.bytes), min(k.beside, k.bytes)) for k in kinds]
        chart = bars("sizes-plot", "Bytes of the weights by kind", caption, drawn)
        rows = [
            (kind.name, count(kind.tensors), byte_text(kind.bytes), percent(_of(kind.bytes, total)))
            for kind in kinds
        ]
        columns = [Column("weights"), *numbers("tensors", "bytes", "share")]
        body = [figure(chart, caption, table(columns, rows))]
    body += [*_formats(subject), *_activations(subject)]
    body += [element("h3", "Files"), _files(subject)]
    return Section("size", "Size", tuple(body), chart)


def _formats(subject: Subject) -> list[Node]:
    """The format of each weight and what it loses, where a pass chose them."""
    facts = _chosen(subject, "formats")
    if facts is None:
        return []
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


def _activations(subject: Subject) -> list[Node]:
    """What each layer loses by activations of 8 bits, where a pass chose which read 16."""
    facts = _chosen(subject, "activations")
    if facts is None:
        return []
    rows = [
        (
            f.get("tensors", str),
            str(f.get("bits", int)),
            number(f.number("kl")),
            "measured" if f.get("measured", bool) else "of the nearest alike",
        )
        for f in facts.children("tensors")
    ]
    caption = (
        f"Chosen within {number(facts.number('budget'))} times the multiply-adds; "
        f"reached: {number(facts.number('reached'))}"
    )
    columns = [*numbers("bits", "KL of 8 bits"), Column("which was")]
    shown = table([Column("read by", "code"), *columns], rows, caption)
    return [element("h3", "Activations"), shown]


def _chosen(subject: Subject, what: str) -> Fields | None:
    """Facts of the first pass that chose ``what`` for each weight or layer."""
    passes = subject.fields.children("passes") if "passes" in subject.report else []
    facts = (f.child("facts") for f in passes if f.values.get("facts"))
    return next((one for one in facts if one.values.get("chosen") == what), None)


def _files(subject: Subject) -> Element:
    files = sorted(subject.manifest.files, key=lambda entry: -entry.bytes)
    rows = [(entry.path, byte_text(entry.bytes), entry.sha256) for entry in files]
    return table([Column("file", "code"), *numbers("bytes"), Column("sha256", "code")], rows)
