"""The page about an artifact (``optc report``): its sections, those that are damaged left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optc.artifact.pages.components import Section, paragraph
from optc.artifact.pages.markup import Element, Node, element
from optc.artifact.pages.numbers import NOTHING, TIMES, number, percent, with_unit
from optc.artifact.pages.page import html_page
from optc.artifact.pages.sections.contexts import contexts
from optc.artifact.pages.sections.decisions import decisions
from optc.artifact.pages.sections.divergence import divergence
from optc.artifact.pages.sections.gates import gates
from optc.artifact.pages.sections.identity import engines, identity, warnings
from optc.artifact.pages.sections.ladder import ladder
from optc.artifact.pages.sections.layers import layers
from optc.artifact.pages.sections.pipeline import pipeline
from optc.artifact.pages.sections.sizes import sizes
from optc.artifact.pages.sections.speed import roof, step_times
from optc.artifact.pages.sections.subject import Subject
from optc.errors import ArtifactError
from optc.system.units import byte_text

#: In the order of the page.
SECTIONS: Mapping[str, Callable[[Subject], Section | None]] = {
    "Warnings": warnings,
    "Gates": gates,
    "Recipes that were tried": ladder,
    "Divergence from the float32 model": divergence,
    "Largest divergences, as text": contexts,
    "Decisions in conversations": decisions,
    "Fidelity by layer": layers,
    "Roofline": roof,
    "Where the time of a step goes": step_times,
    "Size": sizes,
    "Pipeline": pipeline,
    "Engines": engines,
    "Versions and digests": identity,
}


@dataclass(frozen=True)
class ArtifactPage:
    """A page.

    Attributes:
        text: HTML.
        sections: Anchors of its sections, in order.
        damaged: What is left out because the report is damaged there, one sentence each.
    """

    text: str
    sections: tuple[str, ...]
    damaged: tuple[str, ...]


def artifact_page(subject: Subject) -> ArtifactPage:
    """The page about an artifact."""
    shown: list[Section] = []
    damaged: list[str] = []
    for title, make in SECTIONS.items():
        try:
            section = make(subject)
        except ArtifactError as error:
            damaged.append(f"{title} is left out: {error.render()}")
            section = Section(f"damaged-{len(damaged)}", title, (paragraph(damaged[-1]),))
        shown += [] if section is None else [section]
    version = subject.manifest.packages.get("optc", "")
    made_by = (
        f"Made by optc report. Compiled by optc {version}. Artifact {subject.manifest.digest}."
    )
    text = html_page(_title(subject), _head(subject), shown, made_by)
    return ArtifactPage(text, tuple(one.ident for one in shown), tuple(damaged))


def _title(subject: Subject) -> str:
    return f"{subject.manifest.name}, {subject.manifest.recipe.get('name', '')}"


def _head(subject: Subject) -> list[Node]:
    manifest = subject.manifest
    targets = dict.fromkeys(f"{e.backend} for {e.target.name}" for e in manifest.engines)
    recipe = str(manifest.recipe.get("name", ""))
    return [
        element("h1", manifest.name),
        element("p", f"{recipe}, {', '.join(targets)}", class_="lead"),
        element("dl", [_figure(*one) for one in _key_figures(subject)], class_="key"),
    ]


def _figure(name: str, value: str, note: str) -> Element:
    shown = element("dd", value, element("small", note) if note else None)
    return element("div", element("dt", name), shown)


def _key_figures(subject: Subject) -> list[tuple[str, str, str]]:
    """Name, value and a note of what one looks at first."""
    manifest = subject.manifest
    size = sum({entry.sha256: entry.bytes for entry in manifest.files}.values())
    judged = _verdicts(subject)
    passed = f"{judged.count(True)} of {len(judged)}" if manifest.gated else "switched off"
    values = _values(subject.report)
    return [
        ("Gates passed", passed, ""),
        ("Mean KL", number(values.get("kl_mean")), "nats a token"),
        ("Perplexity", _change(values.get("perplexity_ratio")), "against float32"),
        ("Decode", _times(values.get("decode_speedup")), "the speed of float32"),
        ("Prefill", _times(values.get("prefill_speedup")), "the speed of float32"),
        ("Size", byte_text(size), f"{len(manifest.files)} files"),
    ]


def _verdicts(subject: Subject) -> list[bool | None]:
    """Of gates with a bound: of the report, which has those of ``optc verify --gates``, too; else
    of the manifest."""
    found = subject.report.get("gates") or [
        {"bound": gate.bound, "passed": gate.passed} for gate in subject.manifest.gates
    ]
    return [gate["passed"] for gate in found if gate["bound"] is not None]


def _times(value: float | None) -> str:
    return NOTHING if value is None else with_unit(value, TIMES)


def _change(ratio: float | None) -> str:
    """The change that a ratio states, in percent."""
    if ratio is None:
        return NOTHING
    return f"{'+' if ratio >= 1 else ''}{percent(ratio - 1, 2)}"


def _values(report: Mapping[str, Any]) -> dict[str, float]:
    """Values of gates by name, of the first engine that has each."""
    found: dict[str, float] = {}
    for gate in report.get("gates", []):
        if gate["value"] is not None:
            found.setdefault(gate["name"], gate["value"])
    return found
