"""Figures of a benchmark's JSON object, and baselines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError
from optc.proof.conditions.bench_figures import (
    RESULTS,
    WORKLOAD,
    bench_figures,
    check_alike,
    read_baseline,
)

ONE = {
    "concurrency": 8,
    "prompt_tokens": 9,
    "output_tokens": 4,
    "prefill_tokens_per_s": 100.0,
    "decode_tokens_per_s": None,
    "ttft_ms": {"p50": 1.0, "p90": 2.0, "p99": 3.0},
    "tpot_ms": {"p50": None, "p90": None, "p99": None},
    "mbu": 0.5,
    "mfu": None,
}
BENCH: dict[str, Any] = {"schema": "optc.bench.v1", "results": [ONE], "rounds": 3}


def test_results_by_concurrency() -> None:
    found = bench_figures({"results": [{**ONE, "concurrency": 1, "mbu": 0.25}, ONE]})
    assert tuple(found) == RESULTS
    assert found["mbu"] == {"1": 0.25, "8": 0.5}
    assert found["ttft_ms.p90"] == {"1": 2, "8": 2}
    assert found["decode_tokens_per_s"] == {"1": None, "8": None}


def test_a_workload_is_one_case() -> None:
    latencies = dict.fromkeys(("p50", "p90", "p95", "p99", "mean"), 7.0)
    value: dict[str, Any] = {metric: 1.0 for metric in WORKLOAD if "." not in metric}
    value |= {f"{name}_ms": latencies for name in ("ttft", "tpot", "itl", "e2e", "queue")}
    value |= {"goodput": None, "kv_use": {"mean": 0.5, "peak": 1.0}, "cost": None}
    found = bench_figures({"results": [], "workload": value})
    assert tuple(found) == WORKLOAD
    assert found["e2e_ms.mean"] == {"": 7}
    assert found["goodput.share"] == {"": None}
    assert found["kv_use.peak"] == {"": 1}


def test_a_baseline_is_read(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text(json.dumps(BENCH))
    assert read_baseline(path) == BENCH


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"schema": "optc.diff.v1", "results": [ONE]},
        {"schema": "optc.bench.v1"},
        {"schema": "optc.bench.v1", "results": [{**ONE, "mbu": "fast"}]},
        {"schema": "optc.bench.v1", "results": [{**ONE, "mbu": True}]},
        {"schema": "optc.bench.v1", "results": [{**ONE, "ttft_ms": 3}]},
        {"schema": "optc.bench.v1", "results": [{"concurrency": 1}]},
        {"schema": "optc.bench.v1", "results": 3},
        {"schema": "optc.bench.v1", "results": [], "workload": {}},
    ],
)
def test_what_is_no_baseline_is_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "b.json"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match=r"b\.json: is not what optc bench --json prints"):
        read_baseline(path)


def test_baselines_that_cannot_be_read_or_are_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent: cannot be read: No such file"):
        read_baseline(tmp_path / "absent")
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(InputError, match="is not what optc bench"):
        read_baseline(tmp_path / "b.json")
    (tmp_path / "b.json").write_text(json.dumps({**BENCH, "results": []}))
    with pytest.raises(InputError, match="has no figures to compare with"):
        read_baseline(tmp_path / "b.json")


def test_runs_of_other_work_are_not_compared() -> None:
    longer = {"results": [{**ONE, "prompt_tokens": 99}]}
    check_alike(BENCH, {"results": [{**ONE, "concurrency": 1}]}, "--compare")
    with pytest.raises(
        InputError,
        match="the baseline measured 99 prompt and 4 output tokens, this run 9 prompt and 4 output",
    ):
        check_alike(BENCH, longer, "--compare")
    workload = {"results": [], "workload": {"spec": "poisson:rate=4"}}
    check_alike(workload, workload, "--compare")
    with pytest.raises(InputError, match="the workload poisson:rate=4, this run 9 prompt"):
        check_alike(BENCH, workload, "--compare")
