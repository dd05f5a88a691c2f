"""bench and targets with a backend that can be measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from optc import registry
from optc.proof.roofline.costs import StepCosts
from optc.runtime.executable.executable import StepInterface
from optc.system.hardware.target import Target
from tests.cli.conftest import Optc
from tests.proof.bench.fakes import COSTS, FakeMeter, FakeProfiler
from tests.support.stub import StubBackend

FRAME = {"schema", "warnings"}
#: More than the toy engine can reach.
FAST = {"read": 1e15, "int8": 1e15, "fp32": 1e15}


class MeasurableStub(StubBackend):
    """The stub with ceilings that are given."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = FakeMeter(**FAST)
        self.profiler = FakeProfiler()
        self.measured: list[str] = []

    def step_costs(self, data: dict[str, Any]) -> StepCosts:
        return StepCosts.from_json(asdict(COSTS))

    def open_meter(
        self, folder: Path, data: dict[str, Any], threads: int, working_set_bytes: int
    ) -> FakeMeter:
        assert (folder / "engine.bin").exists()
        assert working_set_bytes == 1000
        return self.meter

    def open_profiler(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> FakeProfiler:
        return self.profiler

    def build_meter(
        self, target: Target, folder: Path, threads: int, working_set_bytes: int
    ) -> FakeMeter:
        assert folder.is_dir()
        self.measured.append(target.name)
        return self.meter


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> MeasurableStub:
    made = MeasurableStub()
    monkeypatch.setattr(registry, "backend_names", lambda: ("tvm",))
    monkeypatch.setattr(registry, "backend", lambda name: made)
    return made


@pytest.fixture
def artifact(
    optc: Optc, backend: MeasurableStub, quick_import: None, tiny_model: Path, tmp_path: Path
) -> Path:
    path = tmp_path / "a"
    assert optc("compile", tiny_model, "-o", path, "--recipe", "fp32", "--no-gates").code == 0
    return path


SHORT = ("--prompt-tokens", "8", "--output-tokens", "4", "--concurrency", "2", "--rounds", "1")


def test_bench_reports_utilizations_and_ceilings(optc: Optc, artifact: Path) -> None:
    value = optc("bench", artifact, *SHORT, "--json").json
    assert set(value) == {"target", "engine", "results", "rounds", "ceilings"} | FRAME
    assert value["warnings"] == []
    assert value["rounds"] == 1
    assert 0 < value["results"][0]["mbu"] < 1
    assert 0 < value["results"][0]["mfu"] < 1
    assert value["ceilings"]["read_gb_per_s"] == {"best": 1e6, "median": 9e5}
    assert set(value["ceilings"]) == {
        "read_bytes",
        "read_gb_per_s",
        "int8_gop_per_s",
        "fp32_gop_per_s",
    }
    shown = optc("bench", artifact, *SHORT).out
    assert "MBU" in shown
    assert "ceilings, best (median): read 1e+06 (9e+05) GB/s" in shown


def test_more_than_the_ceiling_fails_the_benchmark(
    optc: Optc, backend: MeasurableStub, artifact: Path
) -> None:
    backend.meter.best["read"] = 1.0
    outcome = optc("bench", artifact, *SHORT, "--json")
    assert outcome.code == 4
    assert outcome.json["error"]["kind"] == "disturbed"
    assert outcome.json["error"]["hint"] == "repeat on an idle machine"
    assert outcome.json["results"][0]["mbu"] > 1.05
    shown = optc("bench", artifact, *SHORT)
    assert shown.code == 4
    assert "is above what this machine can do: the ceilings were disturbed" in shown.err


def test_profile_has_the_documented_keys(
    optc: Optc, backend: MeasurableStub, artifact: Path
) -> None:
    rest = ("--profile", "--prompt-tokens", "16", "--concurrency", "1,3")
    value = optc("bench", artifact, *rest, "--json").json
    assert set(value) == {"target", "engine", "results", "rounds", "ceilings", "profile"} | FRAME
    assert (value["target"], value["results"], value["rounds"]) == ("native", [], 20)
    steps = [(s["phase"], s["sequences"], s["rows"], s["context"]) for s in value["profile"]]
    assert steps == [("decode", 1, 1, 16), ("decode", 3, 3, 16), ("prefill", 1, 16, 16)]
    assert {k["name"] for k in value["profile"][0]["kernels"]} >= {"int_matmul_0", "add"}
    assert backend.profiler.closed
    assert len(backend.profiler.batches) == 3


def test_profile_prints_a_table_for_each_step(
    optc: Optc, backend: MeasurableStub, artifact: Path
) -> None:
    backend.meter.best = {"read": 1e6, "int8": 2e6, "fp32": 1e6}
    out = optc("bench", artifact, "--profile").out
    assert "a: decode, 1 sequences, 1 rows, 64 tokens of context" in out
    assert "int_matmul_0 20x10" in out
    assert "step 10 ms = 7 ms in kernels + 3 ms around them" in out
    outcome = optc("bench", artifact, "--profile", "--json")
    assert outcome.json["warnings"] == ["prompts have 64 tokens: more do not fit the context"]


def test_profile_needs_a_backend_that_can_be_measured(
    optc: Optc, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "backend", lambda name: StubBackend())
    outcome = optc("bench", artifact, "--profile")
    assert outcome.code == 3
    assert "bench: the backend stub measures no ceilings" in outcome.err


def test_targets_measure_this_machine(
    optc: Optc, backend: MeasurableStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optc.proof.roofline.this_machine.MEASURE_S", 0.0)
    value = optc("targets", "--measure", "--json").json
    assert value["host"]["ceilings"]["int8_gop_per_s"] == {"best": 1e6, "median": 9e5}
    assert backend.measured == ["native"]
    assert "threads; ceilings, best (median): read" in optc("targets", "--measure").out
    assert "ceilings" not in optc("targets", "--json").json["host"]


def test_targets_measure_says_what_is_missing(
    optc: Optc, backend: MeasurableStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.reason = "no linker: install g++"
    outcome = optc("targets", "--measure")
    assert outcome.code == 3
    assert "no backend can measure this machine (tvm: no linker: install g++)" in outcome.err


TRAFFIC = "poisson:rate=500,requests=20,prompt=uniform(4,9),output=4"


def test_a_workload_is_replayed_and_summed_up(optc: Optc, artifact: Path) -> None:
    rest = ("--workload", TRAFFIC, "--slo", "ttft=100s,tpot=100s", "--price-per-hour", "2")
    value = optc("bench", artifact, *rest, "--json").json
    assert set(value) == {"target", "engine", "results", "rounds", "ceilings", "workload"} | FRAME
    assert (value["results"], value["warnings"]) == ([], [])
    found = value["workload"]
    assert (found["spec"], found["seed"], found["warmup"]) == (TRAFFIC, 0, 2)
    assert (found["requests"], found["failed"], found["output_tokens"]) == (18, 0, 72)
    assert found["goodput"]["share"] == 1
    assert 0 < found["mbu"] < 1
    assert found["cost"]["per_million_tokens"] < found["cost"]["per_million_output_tokens"]
    shown = optc("bench", artifact, *rest, "--warmup", "0").out
    assert "20 requests in" in shown
    assert "100 % of the requests within the objectives" in shown
    assert "cost of a million tokens" in shown


def test_objectives_that_no_request_meets_fail(optc: Optc, artifact: Path) -> None:
    rest = ("--workload", TRAFFIC, "--slo", "ttft=0.0001us,tpot=100s")
    found = optc("bench", artifact, *rest, "--json")
    assert found.code == 4
    assert found.json["error"]["kind"] == "objectives"
    assert found.json["workload"]["goodput"]["share"] == 0
    assert found.json["warnings"] == []
    assert set(found.json) >= {"target", "engine", "results", "rounds", "ceilings"}
    shown = optc("bench", artifact, *rest)
    assert shown.code == 4
    assert "goodput 0/s: 0 % of the requests" in shown.out
    assert "error: --slo: not one request meets the objectives: the median ttft is " in shown.err


def test_a_workload_is_shortened_to_the_context(optc: Optc, artifact: Path) -> None:
    spec = "poisson:rate=500,requests=3,prompt=900,output=4"
    warnings = optc("bench", artifact, "--workload", spec, "--json").json["warnings"]
    assert warnings == ["3 of 3 requests were shortened to the context of 64 tokens"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workload", "none"), "workload: 'none' is neither a file nor poisson:…"),
        (("--workload", TRAFFIC, "--slo", "fast"), "--slo: 'fast' is no objective"),
        (("--workload", TRAFFIC, "--warmup", "20"), "--warmup: the workload has 20 requests"),
        (("--slo", "ttft=1s"), "--slo: needs --workload"),
        (("--settings", "tuned.json"), "--settings: needs --workload"),
        (("--price-per-hour", "1"), "--price-per-hour: needs --workload"),
        (("--warmup", "1"), "--warmup: needs --workload"),
        (("--seed", "0"), "--seed: needs --workload"),
        *(
            (("--workload", TRAFFIC, *option), f"{option[0]}: changes nothing with --workload")
            for option in (
                ("--prompt-tokens", "512"),
                ("--output-tokens", "4"),
                ("--concurrency", "1,8,16"),
                ("--rounds", "3"),
                ("--profile",),
            )
        ),
        (("--profile", "--output-tokens", "4"), "--output-tokens: changes nothing with --profile"),
        (("--profile", "--kv-memory", "1GiB"), "--kv-memory: changes nothing with --profile"),
        (
            ("--prompt-tokens", "61", "--output-tokens", "4"),
            "--prompt-tokens: 61 prompt tokens do not fit the context of 64 tokens (at most 60)",
        ),
        (
            ("--profile", "--prompt-tokens", "65"),
            "do not fit the context of 64 tokens (at most 64)",
        ),
    ],
)
def test_options_that_are_wrong_or_would_be_ignored_are_refused_are_refused(
    optc: Optc, artifact: Path, options: tuple[str, ...], message: str
) -> None:
    outcome = optc("bench", artifact, *options)
    assert outcome.code == 2
    assert message in outcome.err
