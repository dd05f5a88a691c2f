"""optc tune on the toy engine, whose step times come from the cache."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import optc as package
from optc import registry
from optc.runtime.speculative.planning.costs_cache import CostsCache
from optc.system.hardware.target import Target
from tests.cli.conftest import Optc
from tests.proof.simulate.fakes import step_times
from tests.runtime.support.artifacts import ToyBackend, write_artifact

WANTED = ("--slo", "ttft=200ms,tpot=20ms", "--threads", "1")
TRAFFIC = ("--rate", "3", "--prompt", "uniform(10,60)", "--output", "8")


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("optc.cli.commands.tune._REQUESTS", 60)
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "backend", lambda name: ToyBackend())
    written = write_artifact(tmp_path / "toy")
    times = step_times(step=0.005, row=0.001).to_json()
    key = f"{written.digest}/{written.engine().name}"
    CostsCache().write("step-times.v3", key, 1, times)
    return written.path


def test_settings_are_recommended_and_can_be_used(
    optc: Optc, artifact: Path, tmp_path: Path
) -> None:
    value = optc("tune", artifact, *WANTED, *TRAFFIC, "--json").json
    assert set(value) == {
        "schema",
        "warnings",
        "workload",
        "slo",
        "artifact",
        "engine",
        "settings",
        "step_time_error",
        "max_rate",
        "candidates",
    }
    assert value["artifact"] == str(artifact)
    assert value["slo"] == {"ttft_ms": 200, "tpot_ms": 20, "e2e_ms": None, "itl_ms": None}
    assert value["candidates"][0]["goodput"]["share"] == max(
        candidate["goodput"]["share"] for candidate in value["candidates"]
    )
    with package.load(artifact, engine=value["engine"], **value["settings"]) as engine:
        assert engine.generate(["ab"], package.SamplingParams(max_tokens=2))[0].error is None
    tuned = tmp_path / "tuned.json"
    tuned.write_text(json.dumps(value))
    spec = "poisson:rate=900,requests=5,prompt=9,output=3"
    rest = ("--workload", spec, "--settings", tuned, "--json")
    assert optc("bench", artifact, *rest).json["workload"]["settings"] == value["settings"]


def test_the_table_ends_with_the_call_to_make(optc: Optc, artifact: Path) -> None:
    shown = optc("tune", artifact, *WANTED, *TRAFFIC).out
    unfolded = " ".join(shown.split())  # where lines are cut depends on the folder's name
    assert "candidates; mean error of simulated step times 0 %" in unfolded
    assert "optc.load(" in unfolded
    assert "token_budget=" in unfolded


NEVER = ("--slo", "ttft=0.001ms,itl=0.0001ms", "--threads", "1")


def test_objectives_that_nothing_meets_recommend_nothing(optc: Optc, artifact: Path) -> None:
    found = optc("tune", artifact, *NEVER, *TRAFFIC, "--json")
    assert found.code == 4
    error = found.json["error"]
    assert (error["kind"], error["where"]) == ("objectives", "--slo")
    assert re.fullmatch(
        r"not one request meets the objectives: the median ttft is [0-9.]+ ms, 0.001 ms are "
        r"allowed; the median itl is [0-9.]+ ms, 0.0001 ms are allowed",
        error["message"],
    )
    assert error["hint"] == "allow more ttft and itl, or send fewer or shorter requests"
    assert [found.json[key] for key in ("artifact", "engine", "settings")] == [None] * 3
    assert found.json["max_rate"]["requests_per_s"] is None
    assert {c["goodput"]["share"] for c in found.json["candidates"]} == {0}
    assert found.json["warnings"] == []
    shown = optc("tune", artifact, *NEVER, *TRAFFIC)
    assert shown.code == 4
    assert "good %" in shown.out
    assert "optc.load(" not in shown.out
    assert "error: --slo: not one request meets the objectives" in shown.err


def test_objectives_that_few_requests_meet_are_a_warning(optc: Optc, artifact: Path) -> None:
    """Requests of one token take the time of their prompt: those of short prompts are in time."""
    traffic = ("--rate", "1", "--prompt", "uniform(1,60)", "--output", "1")
    found = optc("tune", artifact, "--slo", "e2e=20ms", "--threads", "1", *traffic, "--json").json
    share = found["candidates"][0]["goodput"]["share"]
    assert 0 < share < 0.9
    (warning,) = found["warnings"]
    assert warning == f"{share:.1%} of the requests meet the objectives, fewer than 90%"
    assert found["settings"] is not None


def test_an_engine_by_name(optc: Optc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each engine of an artifact has step times of its own."""
    monkeypatch.setattr("optc.cli.commands.tune._REQUESTS", 60)
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "backend", lambda name: ToyBackend())
    targets = (Target("any", "cpu"), Target("other", "cpu"))
    written = write_artifact(tmp_path / "two", targets=targets)
    for name, row in (("target-any", 0.001), ("target-other", 0.004)):
        times = step_times(step=0.005, row=row).to_json()
        CostsCache().write("step-times.v3", f"{written.digest}/{name}", 1, times)
    latencies = {}
    for name in ("target-any", "target-other"):
        found = optc("tune", written.path, *WANTED, *TRAFFIC, "--engine", name, "--json").json
        assert found["engine"] == name
        latencies[name] = found["candidates"][0]["e2e_ms"]["p90"]
    assert latencies["target-other"] > 1.2 * latencies["target-any"]
    wrong = optc("tune", written.path, *WANTED, *TRAFFIC, "--engine", "third")
    assert (wrong.code, "target-any" in wrong.err) == (2, True)


def test_step_times_are_measured_where_none_are_kept(
    optc: Optc, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optc.proof.simulate.stopwatch._TURN_S", 0.0)
    monkeypatch.setattr("optc.proof.simulate.service._DECODE_S", 0.0)
    monkeypatch.setattr("optc.proof.simulate.service._MIXED_S", 0.0)
    monkeypatch.setattr("optc.proof.simulate.service._ARRIVALS", 2)
    trace = ("--trace", "poisson:rate=5,requests=5,prompt=9,output=3")
    rest = ("--slo", "ttft=1s", *trace, "--threads", "2", "--json")
    assert optc("tune", artifact, *rest).json["step_time_error"][str(artifact)] > 0
    assert len(list(CostsCache().folder.iterdir())) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--slo", "ttft=1s"), "optc tune: give either --rate or --trace"),
        (("--slo", "ttft=1s", "--rate", "1", "--trace", "x"), "give either --rate or --trace"),
        (("--slo", "soon", "--rate", "1"), "--slo: 'soon' is no objective"),
        (("--slo", "ttft=1s", "--trace", "x"), "workload: 'x' is neither a file nor poisson:…"),
        (("--slo", "ttft=1s", "--trace", "x", "--prompt", "9"), "--prompt: the trace states"),
        (("--slo", "ttft=1s", "--trace", "x", "--output", "9"), "--output: the trace states"),
        (("--slo", "ttft=1s", "--rate", "1", "--prompt", "long"), "'long' is no distribution"),
        (("--slo", "ttft=1s", "--rate", "1", "--kv-memory", "much"), "'much' is not a size"),
    ],
)
def test_wrong_options_are_refused(
    optc: Optc, artifact: Path, options: tuple[str, ...], message: str
) -> None:
    outcome = optc("tune", artifact, *options)
    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "tuned.json: is not what optc tune --json prints"),
        ("[" * 100_000, "tuned.json: is not what optc tune --json prints"),
        ('{"settings": {"token_budget": "9"}}', "token_budget: '9' is no number"),
        ('{"settings": 3}', "tuned.json: is not what optc tune --json prints"),
        ('{"settings": {"speed": 9}}', "tuned.json: 'speed' is no setting (one of engine, threads"),
    ],
)
def test_settings_that_are_none_are_refused(
    optc: Optc, artifact: Path, tmp_path: Path, text: str, message: str
) -> None:
    tuned = tmp_path / "tuned.json"
    tuned.write_text(text)
    outcome = optc("bench", artifact, "--workload", "poisson:rate=9", "--settings", tuned)
    assert outcome.code == 2
    assert message in outcome.err
    missing = optc("bench", artifact, "--workload", "poisson:rate=9", "--settings", "nothing")
    assert "nothing: cannot be read" in missing.err
