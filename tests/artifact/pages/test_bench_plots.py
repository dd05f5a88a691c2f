"""What bench and tune measured, as sections with a plot and a table beside it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from optc.artifact.pages.bench_plots import bench_sections, tune_sections
from optc.artifact.pages.markup import Element, element
from tests.artifact.pages.charts.drawing import SVG, read_drawing, shapes, texts
from tests.artifact.pages.sample import BENCH


def drawn(chart: Element | None) -> Any:
    assert chart is not None
    return read_drawing(chart)


def result(concurrency: int, decode: float | None) -> dict[str, Any]:
    times = {"p50": 5.0, "p90": 6.0, "p99": 9.0} if decode else dict.fromkeys(("p50", "p90", "p99"))
    return {
        "concurrency": concurrency,
        "prompt_tokens": 512,
        "output_tokens": 128,
        "prefill_tokens_per_s": 412.34,
        "decode_tokens_per_s": decode,
        "ttft_ms": {"p50": 100.0, "p90": 110.0, "p99": 120.0},
        "tpot_ms": times,
        "mbu": 0.5,
        "mfu": None,
    }


def test_throughput_and_latency() -> None:
    results = [result(1, 20.0), result(8, 110.0)]
    throughput, latency = bench_sections({"results": results, "ceilings": None})
    assert len(shapes(drawn(throughput.chart), "circle", "point")) == 2
    assert texts(drawn(latency.chart), "label") == ["median", "p99"]
    markup = "".join(one.render() for one in throughput.body if isinstance(one, Element))
    assert all(text in markup for text in ("412.3", "110.0", "50.0\u202f%", "512 tokens"))


def test_results_without_decode() -> None:
    for one in bench_sections({"results": [result(1, None)], "ceilings": None}):
        assert shapes(drawn(one.chart), "circle", "point") == []


def test_a_profile() -> None:
    assert [one.ident for one in bench_sections(BENCH)] == ["roofline", "step-time"]


def workload(**changes: Any) -> dict[str, Any]:
    times = {"p50": 10.0, "p90": 20.0, "p95": 30.0, "p99": 40.0, "mean": 12.0}
    latencies = {f"{name}_ms": dict(times) for name in ("ttft", "tpot", "itl", "e2e", "queue")}
    found = {
        **latencies,
        "queue_ms": {**times, "p50": 0.0},
        "requests": 180,
        "offered_per_s": 4.0,
        "spec": "poisson:rate=4",
        "goodput": {"share": 0.95, "slo": {"ttft_ms": 25.0, "tpot_ms": None}},
    }
    return {"workload": {**found, **changes}}


def test_latencies_of_a_workload() -> None:
    (section,) = bench_sections(workload())
    root = drawn(section.chart)
    assert len(shapes(root, "rect", "soft")) == 5
    assert len(shapes(root, "line", "bound")) == 1
    markup = "".join(one.render() for one in section.body if isinstance(one, Element))
    assert "95.0\u202f% of them stayed within all bounds" in markup


def test_a_workload_without_objectives_and_without_times() -> None:
    none = dict.fromkeys(("p50", "p90", "p95", "p99", "mean"))
    names = ("ttft", "tpot", "itl", "e2e", "queue")
    empty = {f"{name}_ms": none for name in names}
    (section,) = bench_sections(workload(goodput=None, **empty))
    assert section.chart is None


def candidate(share: float, ttft: float | None = 100.0) -> dict[str, Any]:
    return {
        "artifact": "a",
        "settings": {"token_budget": 64, "max_sequences": int(100 * share)},
        "goodput": {"share": share},
        "ttft_ms": {"p90": ttft},
        "tpot_ms": {"p90": 10.0},
        "output_tokens_per_s": 200.0,
    }


@pytest.mark.parametrize("met", [True, False])
def test_candidates_of_a_search(met: bool) -> None:
    listed = [candidate(0.9 if met else 0.0), candidate(0.0, 900.0), candidate(0.0, None)]
    values = {
        "candidates": listed,
        "slo": {"ttft_ms": 200.0, "tpot_ms": None, "e2e_ms": None, "itl_ms": None},
        "settings": {"token_budget": 64} if met else None,
        "workload": "poisson:rate=4",
    }
    (section,) = tune_sections(values)
    root = drawn(section.chart)
    assert len(shapes(root, "circle", "ring")) == met
    assert len(shapes(root, "circle", "faint")) == (1 if met else 2)
    markup = "".join(one.render() for one in section.body if isinstance(one, Element))
    assert ("none is recommended" in markup) is not met
    assert "token_budget=64, max_sequences=0" in markup


def test_a_search_lists_thirty_candidates() -> None:
    """All are points; a table of hundreds would be read by nobody."""
    listed = [candidate(0.5) for _ in range(40)]
    slo = {"ttft_ms": 200.0, "tpot_ms": None, "e2e_ms": None, "itl_ms": None}
    values = {"candidates": listed, "slo": slo, "settings": None, "workload": "poisson:rate=4"}
    (section,) = tune_sections(values)
    root = ElementTree.fromstring(element("section", section.body).render())
    assert len(next(root.iter("tbody"))) == 30
    assert len(list(drawn(section.chart).iter(f"{SVG}circle"))) == 40


def test_a_search_whose_candidates_measured_nothing_has_a_table_alone() -> None:
    slo = {"ttft_ms": 200.0, "tpot_ms": None, "e2e_ms": None, "itl_ms": None}
    listed = [candidate(0.0, None)]
    values = {"candidates": listed, "slo": slo, "settings": None, "workload": "poisson:rate=4"}
    (section,) = tune_sections(values)
    assert section.chart is None
    root = ElementTree.fromstring(element("section", section.body).render())
    assert len(list(root.iter("table"))) == 1
