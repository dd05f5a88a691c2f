"""Pipeline: what each pass did, and how long each stage of the compile took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from optc.artifact.pages.charts.bars import Bar, bars
from optc.artifact.pages.components import Column, Section, figure, numbers, paragraph, table
from optc.artifact.pages.markup import Node, element
from optc.artifact.pages.numbers import count, number, percent, seconds
from optc.artifact.pages.sections.subject import Subject
from optc.system.units import byte_text

#: Stages in the order of a compile, which a report's keys do not keep.
_ORDER = (
    *("download", "import", "passes", "vocabulary", "import draft", "calibration text"),
    *("build", "ranges", "draft", "self-draft", "gates", "bisect"),
)
#: Most lines of what a pass skipped, and characters of its figures.
_SKIPPED, _FACTS = 20, 4000


def pipeline(subject: Subject) -> Section:
    """The passes in order, and the stages."""
    specs = {entry.name: entry.spec for entry in subject.manifest.passes}
    found = subject.report.get("passes", [])
    body: list[Node] = [
        paragraph(
            "What the compile did between the source and the engine, in order. The count is the "
            "number of places that a pass rewrote."
        ),
        element("pre", subject.manifest.pipeline),
    ]
    columns = [Column("pass", "code"), *numbers("count", "time"), Column("what it did")]
    if found:
        body.append(table(columns, [_row(entry, specs) for entry in found]))
    else:
        rows = [(e.spec, count(e.count), "", _details(e.details)) for e in subject.manifest.passes]
        body.append(table(columns, rows))
    body += _stages(subject)
    return Section("pipeline", "Pipeline", tuple(body))


def _row(entry: Mapping[str, Any], specs: Mapping[str, str]) -> list[Node | None]:
    said: list[Node] = [_details(entry.get("details") or {})]
    if entry.get("warning"):
        said.append(element("p", str(entry["warning"]), class_="note"))
    skipped = entry.get("skipped") or []
    if isinstance(skipped, list) and skipped:
        lines = [element("li", str(text)) for text in skipped[:_SKIPPED]]
        left = len(skipped) - _SKIPPED
        lines += [element("li", f"… and {left} more")] if left > 0 else []
        said.append(_folded(f"{len(skipped)} places left alone", element("ul", lines)))
    if facts := entry.get("facts"):
        text = json.dumps(facts, ensure_ascii=False, indent=1)
        shown = text if len(text) <= _FACTS else f"{text[:_FACTS]}…"
        said.append(_folded("figures", element("pre", shown)))
    name = specs.get(entry["name"], entry["name"])
    return [name, count(entry["count"]), seconds(entry["seconds"]), element("div", said)]


def _folded(title: str, body: Node) -> Node:
    return element("details", element("summary", title), body)


def _details(details: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {found}" for name, found in details.items())


def _stages(subject: Subject) -> list[Node]:
    """A bar for each stage."""
    stages = subject.part("stages", dict[str, float | None], {})
    if not stages:
        return []
    known = {name: place for place, name in enumerate(_ORDER)}
    names = sorted(stages, key=lambda name: known.get(name, len(known)))
    times = {name: max(stages[name] or 0.0, 0.0) for name in names}
    total = subject.part("seconds", float, 0.0) or sum(times.values())
    peak = subject.part("peak_anon_bytes", int, -1)
    memory = "" if peak < 0 else f" and at most {byte_text(peak)} of memory"
    caption = f"The compile took {seconds(total)}{memory}."
    rows = [Bar(name, value, seconds(value)) for name, value in times.items()]
    chart = bars("stages-plot", "Time of the compile by stage", caption, rows)
    shares = [
        (name, number(value), percent(value / total if total > 0 else None, 2))
        for name, value in times.items()
    ]
    beside = table([Column("stage"), *numbers("s", "share")], shares)
    return [element("h3", "Stages"), figure(chart, caption, beside)]
