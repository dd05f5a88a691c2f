"""Size: what the bytes of the weights are spent on, and the files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from optc.artifact.pages.charts.bars import Bar, bars
from optc.artifact.pages.components import Column, Section, figure, numbers, paragraph, table
from optc.artifact.pages.markup import Element, Node, element
from optc.artifact.pages.numbers import count, number, percent
from optc.artifact.pages.sections.subject import Subject
from optc.artifact.report_data import TensorKind
from optc.system.foreign.typed_json import Integer, typed
from optc.system.units import byte_text

_NONE = "What the weights are spent on is not in the report: it is of an older compile."


class _Format(Struct, frozen=True):
    """A weight's format, as a pass that chose it reports it."""

    tensors: str
    format: str
    measured: bool
    bits: float | None = None
    kl: float | None = None


class _Formats(Struct, frozen=True):
    tensors: tuple[_Format, ...]
    budget: str
    reached: str


class _Activation(Struct, frozen=True):
    """Bits of the activations that a layer reads, as a pass that chose them reports them."""

    tensors: str
    bits: Integer
    measured: bool
    kl: float | None = None


class _Activations(Struct, frozen=True):
    tensors: tuple[_Activation, ...]
    budget: float | None = None
    reached: float | None = None


def _of(part: int, total: int) -> float | None:
    return part / total if total else None


def _caption(kinds: Sequence[TensorKind], total: int) -> str:
    share = percent(_of(sum(kind.scale_bytes for kind in kinds), total), 2)
    return (
        f"Weights take {byte_text(total)} as the recipe stores them, {share} of it for scales, "
        "zero points and biases, which are drawn lighter. An engine may lay them out otherwise."
    )


def sizes(subject: Subject) -> Section:
    """Bytes by kind of tensor, and of each file."""
    kinds = subject.part("tensors", tuple[TensorKind, ...], ())
    chart: Element | None = None
    body: list[Node] = [paragraph(_NONE)]
    if kinds:
        total = sum(kind.bytes for kind in kinds)
        caption = _caption(kinds, total)
        drawn = [
            Bar(k.kind, k.bytes, byte_text(k.bytes), min(k.scale_bytes, k.bytes)) for k in kinds
        ]
        chart = bars("sizes-plot", "Bytes of the weights by kind", caption, drawn)
        rows = [
            (kind.kind, count(kind.tensors), byte_text(kind.bytes), percent(_of(kind.bytes, total)))
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
    found = typed(facts, _Formats, "report.json: formats")
    rows = [
        (
            one.tensors,
            one.format,
            number(one.bits),
            number(one.kl),
            "measured" if one.measured else "from its error",
        )
        for one in found.tensors
    ]
    caption = f"Chosen within {found.budget}; reached: {found.reached}"
    columns = [Column("format"), *numbers("bits", "KL alone"), Column("which was")]
    shown = table([Column("weights", "code"), *columns], rows, caption)
    return [element("h3", "Formats"), shown]


def _activations(subject: Subject) -> list[Node]:
    """The loss of each layer by activations of 8 bits, where a pass chose which read 16."""
    facts = _chosen(subject, "activations")
    if facts is None:
        return []
    found = typed(facts, _Activations, "report.json: activations")
    rows = [
        (
            one.tensors,
            str(one.bits),
            number(one.kl),
            "measured" if one.measured else "of the nearest alike",
        )
        for one in found.tensors
    ]
    caption = (
        f"Chosen within {number(found.budget)} times the multiply-adds; "
        f"reached: {number(found.reached)}"
    )
    columns = [*numbers("bits", "KL of 8 bits"), Column("which was")]
    shown = table([Column("read by", "code"), *columns], rows, caption)
    return [element("h3", "Activations"), shown]


def _chosen(subject: Subject, what: str) -> dict[str, Any] | None:
    """Facts of the first pass that chose ``what`` for each weight or layer."""
    facts = (one.facts for one in subject.passes if one.facts)
    return next((one for one in facts if one.get("chosen") == what), None)


def _files(subject: Subject) -> Element:
    files = sorted(subject.manifest.files, key=lambda entry: -entry.bytes)
    rows = [(entry.path, byte_text(entry.bytes), entry.sha256) for entry in files]
    return table([Column("file", "code"), *numbers("bytes"), Column("sha256", "code")], rows)
