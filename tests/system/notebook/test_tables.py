"""Tables for notebooks: whole, escaped, and of everything that has one."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from optc.artifact.report import Report
from optc.compiling.ladder.plan import LadderPlan
from optc.compiling.plan import Plan
from optc.compiling.predictions.engine_plan import EnginePlan, NodeVerdict
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.outputs import Completion, RequestOutput
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.system.notebook.tables import html_table
from tests.artifact.pages.sample import LADDER
from tests.runtime.support.artifacts import write_artifact

EVIL = "<script>alert('x')</script>&"


class Cells(HTMLParser):
    """The texts of cells, row by row; fails where elements are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def cells(shown: Any) -> list[list[str]]:
    """Of a value as a notebook shows it."""
    html = shown if isinstance(shown, str) else shown._repr_html_()
    assert set(re.findall(r"</?(\w+)", html)) <= {"table", "caption", "tr", "th", "td"}
    parser = Cells()
    parser.feed(html)
    parser.close()
    assert not parser.open
    return parser.rows


def test_texts_are_escaped_and_numbers_are_short() -> None:
    html = html_table(EVIL, ["a", EVIL], [(EVIL, 1 / 3), (None, 7), (True, "")])
    assert "<script>" not in html
    rows = [["a", EVIL], [EVIL, "0.3333"], ["-", "7"], ["True", ""]]
    assert cells(html) == rows


def test_long_tables_end() -> None:
    rows = cells(html_table("t", (), [(number,) for number in range(203)]))
    assert rows[-2:] == [["199"], ["… and 3 more"]]


def test_results() -> None:
    metrics = RequestMetrics(1.0, 1.0, [1.5, 1.75], 2.0)
    first = Completion(0, EVIL, (5, 6), "stop", None, metrics)
    output = RequestOutput((1, 2, 3), (first, replace(first, index=1, text="b")))
    assert cells(output) == [
        ["text", "tokens", "ended by", "ttft_ms", "tpot_ms"],
        [EVIL, "2", "stop", "500", "250"],
        ["b", "2", "stop", "500", "250"],
    ]


def test_metrics() -> None:
    rows = cells(EngineMetrics(steps=3))
    assert rows[0] == ["", "p50", "p90", "p95", "p99", "mean"]
    assert rows[1] == ["ttft_ms", "-", "-", "-", "-", "-"]
    assert ["steps", "3"] in rows


def test_reports_and_artifacts(tmp_path: Path) -> None:
    gate = {"name": "kl_mean", "value": 1e-3, "bound": None, "passed": None, "engine": "e"}
    report = Report(
        gates=[gate, {**gate, "passed": True}, {**gate, "passed": False}],
        passes=[{"name": EVIL, "count": 2, "seconds": 0.5}],
    )
    assert [row[-1] for row in cells(report)] == [
        "verdict",
        "open",
        "passed",
        "failed",
        "seconds",
        "0.5",
    ]
    assert cells(report)[-1][0] == EVIL
    artifact = write_artifact(tmp_path / "a")
    assert cells(artifact)[:2] == [
        ["engine", "role", "backend", "target"],
        ["target", "target", "toy", "any"],
    ]
    text = (
        f"<optc.Artifact '{tmp_path}/a': toy, none: target (toy for any); {artifact.digest[:12]}…>"
    )
    assert repr(artifact) == text


def test_plans() -> None:
    node = NodeVerdict("Exp", 4, "unsupported", "no such thing")
    engine = EnginePlan("tvm-x", "tvm", "x", EVIL, (node,))
    plan = Plan("m", "fp32", "spec", (), 64, 10, 20, 20, 30, 40, (engine,))
    rows = cells(plan)
    assert ["weight_bytes", "10"] in rows
    assert rows[-1] == ["tvm-x", "0", "0", "4", EVIL]
    assert repr(plan) == "<optc.Plan of m, fp32: 1 engines>"


def test_ladders() -> None:
    found = cells(LadderPlan(EVIL, LADDER)._repr_html_())
    assert found[0][0] == "recipe"
    assert [row[0] for row in found[1:]] == ["tiny", "small", "exact", "slow", "odd"]
    assert found[1][1:3] == ["120.5", "3000"]
    assert found[-1] == ["odd", "-", "-", "-", "-", "left out", "it suits nobody"]
