"""Divergence: how the KL of single tokens is distributed."""

from __future__ import annotations

from optc.artifact.jsonio import Fields
from optc.report.charts.histogram import Bin, Mark, histogram
from optc.report.components import Column, Section, figure, numbers, paragraph, table
from optc.report.markup import Element, Node, element
from optc.report.numbers import count, number, percent
from optc.report.sections.subject import Subject


def divergence(subject: Subject) -> Section | None:
    """A histogram for each engine; None where nothing was measured."""
    entries = subject.evaluations()
    if not entries:
        return None
    bounds = _bounds(subject)
    body: list[Node] = []
    charts: list[Element] = []
    for index, (name, f) in enumerate(entries):
        if len(entries) > 1:
            body.append(element("h3", name))
        if f.values.get("kl_distribution") is None:
            body += [paragraph(_NONE), _figures(f)]
            continue
        chart = _chart(f"divergence-{index}", f, bounds.get(name))
        charts.append(chart)
        body.append(figure(chart, _caption(f), _figures(f)))
    return Section("divergence", "Divergence from the float32 model", tuple(body), _first(charts))


_NONE = (
    "How the KL of single tokens is distributed is not in the report: it is of an older compile."
)


def _first(charts: list[Element]) -> Element | None:
    return charts[0] if charts else None


def _bounds(subject: Subject) -> dict[str, float]:
    """The bound on the mean KL by engine."""
    return {
        gate.engine: gate.bound
        for gate in subject.manifest.gates
        if gate.name == "kl_mean" and gate.bound is not None and gate.bound > 0
    }


def bins_of(f: Fields) -> list[Bin]:
    """The bins of a distribution, without empty ones at its ends; the first takes exact zeros too,
    and is drawn as wide as the others."""
    first, per_decade = f.number("first") or 1.0, f.count("bins_per_decade", 1)
    counts = f.counts("counts")
    step = 10.0 ** (1 / per_decade)
    filled = [index for index, found in enumerate(counts) if found]
    if not filled:
        return []
    return [
        Bin(_edge(first, step, i - 1), _edge(first, step, i), counts[i])
        for i in range(filled[0], filled[-1] + 1)
    ]


def _edge(first: float, step: float, index: int) -> float:
    """A bound of a bin; of a damaged report it may be no finite number."""
    try:
        return first * step**index
    except OverflowError:
        return float("inf")


def _chart(ident: str, f: Fields, bound: float | None) -> Element:
    distribution = f.child("kl_distribution")
    bins = bins_of(distribution) or [Bin(1e-8, 1e-7, 0)]
    values = {
        "mean": f.number("kl_mean"),
        "99 %": f.number("kl_p99"),
        "largest": f.number("kl_max"),
    }
    marks = [
        Mark(value, f"{name} {number(value)}")
        for name, value in values.items()
        if value is not None and value > 0
    ]
    if bound is not None:
        marks.append(Mark(bound, f"bound of the mean {number(bound)}", bound=True))
    text = _caption(f)
    return histogram(ident, "Distribution of the KL divergence", text, bins, marks, "KL, nats")


def _caption(f: Fields) -> str:
    distribution = f.child("kl_distribution")
    half, tail = distribution.number("p50"), distribution.number("p99")
    return (
        f"Of {count(f.count('tokens'))} tokens half lie below {number(half)} nats, and one in a "
        f"hundred above {number(tail)}. Tokens far to the right are those that the engine predicts "
        "otherwise than the float32 model."
    )


def _figures(f: Fields) -> Element:
    known = f.child("kl_distribution") if f.values.get("kl_distribution") else None
    quantiles = ("p50", "median"), ("p90", "90 %"), ("p99", "99 %"), ("p99_9", "99.9 %")
    rows: list[tuple[str, str]] = []
    if known is not None:
        rows += [(f"KL, {label}", number(known.number(key))) for key, label in quantiles]
    rows += [
        ("KL, largest", number(f.number("kl_max"))),
        ("KL, mean", number(f.number("kl_mean"))),
        ("perplexity", number(f.number("perplexity"), 4)),
        ("of the float32 model", number(f.number("reference_perplexity"), 4)),
        ("same likeliest token", percent(f.number("top1_agreement"))),
        ("among the engine's five", percent(f.number("top5_agreement"))),
        ("tokens", count(f.count("tokens"))),
    ]
    return table([Column(""), *numbers("")], rows)
