"""Marks of a distribution, and what stands for one that is not there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from optc.artifact.manifest import GateEntry
from optc.artifact.pages.sections.divergence import _edge, divergence
from optc.artifact.pages.sections.subject import Subject
from tests.artifact.pages.charts.drawing import read_drawing, shapes, texts
from tests.artifact.pages.sample import report
from tests.artifact.pages.sections.reading import listed, read_section, tables
from tests.artifact.toy import toy_manifest


def section_of(bound: float | None = None, **engine: Any) -> Any:
    found = report()
    found["evaluation"]["target"] |= engine
    manifest = replace(toy_manifest(()), gates=(GateEntry("kl_mean", bound, None),))
    return divergence(Subject(manifest, found))


def marks(section: Any) -> list[str]:
    return texts(read_drawing(section.chart), "label")


def test_values_that_are_there_and_positive_are_marked() -> None:
    assert marks(section_of()) == ["mean 0.000900", "99 % 0.0400", "largest 2.50"]
    assert marks(section_of(kl_mean=0.0, kl_p99=None)) == ["largest 2.50"]
    assert marks(section_of(kl_mean=None, kl_p99=-1.0)) == ["largest 2.50"]


def test_a_bound_is_marked_where_there_is_one() -> None:
    section = section_of(0.003)
    assert "bound of the mean 0.00300" in marks(section)
    assert len(shapes(read_drawing(section.chart), "line", "bound")) == 1
    for none in (None, 0.0):
        assert shapes(read_drawing(section_of(none).chart), "line", "bound") == []


def test_figures_stand_beside_the_distribution() -> None:
    rows = dict(tables(read_section(section_of()))[0])
    assert rows == {
        "KL, median": "0.000200",
        "KL, 90 %": "0.00300",
        "KL, 99 %": "0.0400",
        "KL, 99.9 %": "0.500",
        "KL, largest": "2.50",
        "KL, mean": "0.000900",
        "perplexity": "4.010",
        "of the float32 model": "4.000",
        "same likeliest token": "98.0\u202f%",
        "among the engine's five": "99.9\u202f%",
        "tokens": "7,680",
    }


def test_a_report_without_a_distribution_has_its_figures() -> None:
    section = section_of(kl_distribution=None)
    assert section.chart is None
    root = read_section(section)
    assert "it is of an older compile" in listed(root, "p")[0]
    assert tables(root)[0][0][0] == "KL, largest"


def test_engines_are_named_where_there_are_several() -> None:
    found = report()
    found["evaluation"]["other"] = found["evaluation"]["target"]
    root = read_section(divergence(Subject(toy_manifest(()), found)))
    assert sorted(listed(root, "h3")) == ["other", "target"]
    assert listed(read_section(section_of()), "h3") == []
    assert divergence(Subject(toy_manifest(()), {})) is None


def test_a_bin_of_a_damaged_report_may_reach_beyond_all_numbers() -> None:
    assert _edge(1e-6, 10.0, 2) == pytest.approx(1e-4)
    assert _edge(1e-6, 10.0, 10**6) == float("inf")
