"""Divergence: how the KL of single tokens is distributed."""

from __future__ import annotations

from optc.artifact.pages.charts.histogram import Bin, Mark, histogram
from optc.artifact.pages.components import Column, Section, figure, numbers, paragraph, table
from optc.artifact.pages.markup import Element, Node, element
from optc.artifact.pages.numbers import count, number, percent
from optc.artifact.pages.sections.subject import Subject
from optc.artifact.report_data import DistributionData, DivergenceOf


def divergence(subject: Subject) -> Section | None:
    """A histogram for each engine; None where nothing was measured."""
    entries = subject.evaluations(DivergenceOf)
    if not entries:
        return None
    bounds = _bounds(subject)
    body: list[Node] = []
    charts: list[Element] = []
    for index, (name, f) in enumerate(entries):
        if len(entries) > 1:
            body.append(element("h3", name))
        if f.kl_distribution is None:
            body += [paragraph(_NONE), _figures(f)]
            continue
        caption = _caption(f, f.kl_distribution)
        chart = _chart(f"divergence-{index}", f, f.kl_distribution, bounds.get(name))
        charts.append(chart)
        body.append(figure(chart, caption, _figures(f)))
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


def bins_of(f: DistributionData) -> list[Bin]:
    """The bins of a distribution, without empty ones at its ends; the first takes exact zeros too,
    and is drawn as wide as the others."""
    step = 10.0 ** (1 / f.bins_per_decade)
    filled = [index for index, found in enumerate(f.counts) if found]
    if not filled:
        return []
    return [
        Bin(_edge(f.first, step, i - 1), _edge(f.first, step, i), f.counts[i])
        for i in range(filled[0], filled[-1] + 1)
    ]


def _edge(first: float, step: float, index: int) -> float:
    """A bound of a bin; of a damaged report it may be no finite number."""
    try:
        return first * step**index
    except OverflowError:
        return float("inf")


def _chart(
    ident: str, f: DivergenceOf, distribution: DistributionData, bound: float | None
) -> Element:
    bins = bins_of(distribution) or [Bin(1e-8, 1e-7, 0)]
    values = {"mean": f.kl_mean, "99 %": f.kl_p99, "largest": f.kl_max}
    marks = [
        Mark(value, f"{name} {number(value)}")
        for name, value in values.items()
        if value is not None and value > 0
    ]
    if bound is not None:
        marks.append(Mark(bound, f"bound of the mean {number(bound)}", bound=True))
    text = _caption(f, distribution)
    return histogram(ident, "Distribution of the KL divergence", text, bins, marks, "KL, nats")


def _caption(f: DivergenceOf, distribution: DistributionData) -> str:
    half, tail = distribution.p50, distribution.p99
    return (
        f"Of {count(f.tokens)} tokens half lie below {number(half)} nats, and one in a "
        f"hundred above {number(tail)}. Tokens far to the right are those that the engine predicts "
        "otherwise than the float32 model."
    )


def _figures(f: DivergenceOf) -> Element:
    rows: list[tuple[str, str]] = []
    if (known := f.kl_distribution) is not None:
        labels = ("median", "90 %", "99 %", "99.9 %")
        quantiles = (known.p50, known.p90, known.p99, known.p99_9)
        rows += [
            (f"KL, {label}", number(value)) for label, value in zip(labels, quantiles, strict=True)
        ]
    rows += [
        ("KL, largest", number(f.kl_max)),
        ("KL, mean", number(f.kl_mean)),
        ("perplexity", number(f.perplexity, 4)),
        ("of the float32 model", number(f.reference_perplexity, 4)),
        ("same likeliest token", percent(f.top1_agreement)),
        ("among the engine's five", percent(f.top5_agreement)),
        ("tokens", count(f.tokens)),
    ]
    return table([Column(""), *numbers("")], rows)
