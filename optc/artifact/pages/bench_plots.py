"""Plots of what ``optc bench`` and ``optc tune`` print (``--plot``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optc.artifact.pages.charts.lines import Series, lines
from optc.artifact.pages.charts.ranges import Range, ranges
from optc.artifact.pages.charts.scatter import Axis, Candidate, scatter
from optc.artifact.pages.components import Column, Section, figure, numbers, paragraph, table
from optc.artifact.pages.measured import read_measured
from optc.artifact.pages.numbers import number, percent, with_unit
from optc.artifact.pages.sections.speed import roof_of, step_times_of

_PERCENTILES = ("p50", "p90", "p95", "p99")
_LATENCIES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "gap between tokens",
    "e2e": "arrival to end",
    "queue": "queue",
}
#: Candidates in the table of a search.
_LINES = 30


def bench_sections(values: Mapping[str, Any]) -> list[Section]:
    """Throughput and latencies by requests at once; of a workload its latencies; of a profile the
    roofline and the times of its steps.

    Args:
        values: Of ``optc bench --json``.
    """
    if "profile" in values:
        measured = read_measured(values, "optc bench --profile")
        return [roof_of(measured), step_times_of(measured)]
    if "workload" in values:
        return [_workload(values["workload"])]
    return [_throughput(values["results"]), _latency(values["results"])]


def _throughput(results: Sequence[Mapping[str, Any]]) -> Section:
    first = results[0]
    caption = (
        f"Tokens a second of all requests together: prompts of {first['prompt_tokens']:,} tokens, "
        f"{first['output_tokens']:,} new ones each. Decode gains as long as a step's weights are "
        "read once for more requests."
    )
    series = [
        Series("decode", tuple(r["decode_tokens_per_s"] for r in results)),
        Series("prefill", tuple(r["prefill_tokens_per_s"] for r in results), main=False),
    ]
    places = [str(r["concurrency"]) for r in results]
    chart = lines("throughput", "Throughput", caption, places, series, "tokens/s")
    columns = numbers("prefill, tok/s", "decode, tok/s", "MBU", "MFU")
    rows = [
        (
            str(r["concurrency"]),
            number(r["prefill_tokens_per_s"], 4),
            number(r["decode_tokens_per_s"], 4),
            percent(r["mbu"]),
            percent(r["mfu"]),
        )
        for r in results
    ]
    beside = table([Column("at once"), *columns], rows)
    return Section("throughput", "Throughput", (figure(chart, caption, beside),), chart)


def _latency(results: Sequence[Mapping[str, Any]]) -> Section:
    caption = (
        "The time that one request waits for each further token: the median, and what one in a "
        "hundred exceeds. The median of the time to the first token is in the table."
    )
    series = [
        Series("median", tuple(r["tpot_ms"]["p50"] for r in results)),
        Series("p99", tuple(r["tpot_ms"]["p99"] for r in results), main=False),
    ]
    places = [str(r["concurrency"]) for r in results]
    chart = lines("latency", "Time per output token", caption, places, series, "ms")
    rows = [
        (
            str(r["concurrency"]),
            number(r["tpot_ms"]["p50"]),
            number(r["tpot_ms"]["p90"]),
            number(r["tpot_ms"]["p99"]),
            number(r["ttft_ms"]["p50"]),
        )
        for r in results
    ]
    columns = numbers("p50, ms", "p90, ms", "p99, ms", "TTFT p50, ms")
    beside = table([Column("at once"), *columns], rows)
    return Section("latency", "Time per output token", (figure(chart, caption, beside),), chart)


def _workload(found: Mapping[str, Any]) -> Section:
    goodput = found["goodput"]
    bounds = {} if goodput is None else goodput["slo"]
    clients = found.get("concurrency")
    came = f"arrived at {number(found['offered_per_s'])} a second"
    if clients is not None:
        came = f"came from {clients:,} clients, each one when its last had ended"
    caption = (
        f"{found['requests']:,} requests {came} ({found['spec']}). A bar reaches from the median "
        "to what one in a hundred exceeds."
    )
    if goodput is not None:
        caption += f" {percent(goodput['share'])} of them stayed within all bounds."
    rows = []
    measured_here = {key: name for key, name in _LATENCIES.items() if f"{key}_ms" in found}
    for key, label in measured_here.items():
        measured = [found[f"{key}_ms"][name] for name in _PERCENTILES]
        values = tuple(value for value in measured if value is not None and value > 0)
        if values:
            rows.append(Range(label, values, bounds.get(f"{key}_ms")))
    title = "Latencies"
    cells = [
        (label, *(number(found[f"{key}_ms"][name]) for name in _PERCENTILES))
        for key, label in measured_here.items()
    ]
    beside = table([Column("ms"), *numbers(*_PERCENTILES)], cells)
    if not rows:
        return Section("latencies", title, (paragraph(caption), beside))
    chart = ranges("latencies", title, caption, rows, "ms")
    return Section("latencies", title, (figure(chart, caption, beside),), chart)


def tune_sections(values: Mapping[str, Any]) -> list[Section]:
    """The candidates of a search: how long first and further tokens take with each.

    Args:
        values: Of ``optc tune --json``.
    """
    listed, bounds = values["candidates"], values["slo"]
    chosen = listed[0] if values["settings"] is not None else None
    caption = (
        f"{len(listed)} settings on the same simulated workload ({values['workload']}): nine in "
        "ten requests wait no longer. Filled points serve at least half of the requests within "
        "all objectives. "
    )
    caption += _recommendation(chosen)
    points = [_point(one, one is chosen) for one in listed]
    drawn = [point for point in points if point is not None]
    beside = _candidates(listed)
    if not drawn:
        return [Section("candidates", "Candidates", (paragraph(caption), beside))]
    across = Axis("time to first token, p90, ms", bounds["ttft_ms"])
    up = Axis("time per output token, p90, ms", bounds["tpot_ms"])
    chart = scatter("candidates", "Candidates", caption, drawn, across, up)
    return [Section("candidates", "Candidates", (figure(chart, caption, beside),), chart)]


def _recommendation(chosen: Mapping[str, Any] | None) -> str:
    if chosen is None:
        return "Not one request meets the objectives with any of them: none is recommended."
    share = percent(chosen["goodput"]["share"])
    return f"The recommended one has a goodput of {share}."


def _point(one: Mapping[str, Any], chosen: bool) -> Candidate | None:
    x, y = one["ttft_ms"]["p90"], one["tpot_ms"]["p90"]
    if not x or not y:
        return None
    share = one["goodput"]["share"]
    hint = f"{_settings(one)}: TTFT {number(x)} ms, TPOT {number(y)} ms, goodput {percent(share)}"
    return Candidate(x, y, share, hint, chosen)


def _settings(one: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in one["settings"].items()) or "defaults"


def _candidates(listed: Sequence[Mapping[str, Any]]) -> Any:
    rows = [
        (
            _settings(one),
            percent(one["goodput"]["share"]),
            number(one["ttft_ms"]["p90"]),
            number(one["tpot_ms"]["p90"]),
            with_unit(one["output_tokens_per_s"], "tok/s", 4),
        )
        for one in listed[:_LINES]
    ]
    columns = numbers("goodput", "TTFT p90, ms", "TPOT p90, ms", "output")
    return table([Column("settings", "code"), *columns], rows)
