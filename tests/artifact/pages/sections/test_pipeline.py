"""What passes did, and how long stages took."""

from __future__ import annotations

import json
from typing import Any

from optc.artifact.pages.numbers import NOTHING
from optc.artifact.pages.sections.pipeline import pipeline
from tests.artifact.pages.sample import report, subject
from tests.artifact.pages.sections.reading import first_row, listed, read_section, tables


def one_pass(**more: Any) -> dict[str, Any]:
    return {"name": "fold", "count": 1234, "seconds": 0.25, **more}


def section_of(**more: Any) -> Any:
    return read_section(pipeline(subject(report(passes=[one_pass(**more)]))))


def test_a_pass_says_what_it_did() -> None:
    facts = {"layers": 2, "kept": ["é"]}
    root = section_of(
        details={"full": 2, "part": 1}, skipped=["a node: why"], facts=facts, warning="beware"
    )
    row = first_row(root)
    assert (row["pass"], row["count"], row["time"]) == ("fold", "1,234", "250\u202fms")
    assert "full 2, part 1" in row["what it did"]
    assert listed(root, "summary") == ["1 places left alone", "figures"]
    assert listed(root, "li") == ["a node: why"]
    assert json.loads(listed(root, "pre")[1]) == facts
    assert listed(root, "p", class_="note") == ["beware"]


def test_a_pass_that_did_nothing_folds_nothing() -> None:
    root = section_of(details={}, skipped=[], facts={}, warning="")
    assert listed(root, "summary") == []
    assert listed(root, "p", class_="note") == []
    assert listed(section_of(skipped="of another release"), "summary") == []


def test_long_lists_and_figures_are_cut() -> None:
    root = section_of(skipped=[f"node {n}" for n in range(25)], facts="x" * 4000)
    assert listed(root, "li") == [*(f"node {n}" for n in range(20)), "… and 5 more"]
    assert listed(root, "summary")[0] == "25 places left alone"
    assert listed(root, "pre")[1] == '"' + "x" * 3999 + "…"
    root = section_of(skipped=[f"node {n}" for n in range(20)], facts="x" * 3998)
    assert listed(root, "li")[-1] == "node 19"
    assert listed(root, "pre")[1] == '"' + "x" * 3998 + '"'


def test_without_a_report_the_manifest_says_what_passes_found() -> None:
    root = read_section(pipeline(subject({})))
    assert tables(root) == [[["kv-cache", "2", "", "full 2"]]]
    assert listed(root, "h3") == []


def test_stages_share_the_time_of_the_compile() -> None:
    root = read_section(pipeline(subject()))
    assert tables(root)[-1] == [["import", "4.00", "11\u202f%"], ["build", "30.0", "86\u202f%"]]
    assert listed(root, "figcaption") == [
        "The compile took 35\u202fs and at most 1.0 GiB of memory."
    ]
    found = report(stages={"import": 0.0, "build": None}, seconds=0.0)
    del found["peak_anon_bytes"]
    root = read_section(pipeline(subject(found)))
    assert [row[2] for row in tables(root)[-1]] == [NOTHING] * 2, "no share of nothing"
    assert listed(root, "figcaption") == ["The compile took 0\u202fms."]
    root = read_section(pipeline(subject(report(stages={"a": 1.0, "b": 3.0}, seconds=0.0))))
    assert [row[2] for row in tables(root)[-1]] == ["25\u202f%", "75\u202f%"]
