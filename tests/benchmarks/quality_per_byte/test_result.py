"""The result file takes what a run adds and keeps the rest."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.quality_per_byte.curve import verdict
from benchmarks.quality_per_byte.points import Point
from benchmarks.quality_per_byte.result import Result

ABOUT = {"model": "tiny", "text": "a text"}


def point(who: str, label: str, kl: float, size: int) -> Point:
    """A point of weights alone."""
    figures = {"kl_mean": kl, "top1_agreement": 0.9}
    return Point(who, label, "weights", size, 4.0, 4.0, figures)


def test_parts_are_merged_and_judged_and_drawn(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    reason = {"who": "peer", "label": "late", "reason": "it was not there"}
    Result(path, ABOUT, verdict).add([point("optc", "a", 0.1, 4_000_000)], [reason])
    Result(path, ABOUT, verdict).add([point("peer", "b", 0.05, 5_000_000)])
    content = json.loads(path.read_text())
    assert [entry["label"] for entry in content["points"]] == ["a", "b"]
    assert content["verdict"]["held"] is False
    assert content["missing"] == [reason]
    assert "peer b" in path.with_suffix(".svg").read_text()


def test_what_was_missing_and_is_there_is_no_longer_missing(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    missing = [{"who": "peer", "label": name, "reason": "late"} for name in ("b", "c")]
    Result(path, ABOUT, verdict).add([], missing)
    Result(path, ABOUT, verdict).add([point("peer", "b", 0.05, 5_000_000)])
    assert json.loads(path.read_text())["missing"] == [missing[1]]


def test_float_models_alone_are_kept_and_not_drawn(tmp_path: Path) -> None:
    path = tmp_path / "results" / "result.json"
    figures = {"kl_mean": 0.0, "top1_agreement": 1.0}
    Result(path, ABOUT, verdict).add(
        [Point("optc", "fp32", "engine", 44_000_000, 32.0, None, figures)]
    )
    content = json.loads(path.read_text())
    assert (content["model"], content["text"]) == ("tiny", "a text")
    assert content["points"][0]["bits_body"] is None
    assert not path.with_suffix(".svg").exists()


def test_two_runs_that_take_turns_keep_each_others_points(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    first, second = (Result(path, ABOUT, verdict) for _ in range(2))
    first.add([point("optc", "a", 0.1, 4_000_000)])
    second.add([point("peer", "b", 0.2, 5_000_000)])
    first.add([point("optc", "c", 0.01, 6_000_000)])
    assert [entry["label"] for entry in json.loads(path.read_text())["points"]] == ["a", "c", "b"]
    assert len(first.points) == 3
