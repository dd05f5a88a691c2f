"""optc bench judged: --require, --compare, --markdown, --junit. No time is judged."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from optc import registry
from tests.cli.conftest import Optc
from tests.runtime.support.artifacts import ToyBackend, write_artifact

SHORT = ("--prompt-tokens", "8", "--output-tokens", "4", "--concurrency", "1,2", "--rounds", "1")
TRAFFIC = ("--workload", "poisson:rate=500,requests=5,prompt=4,output=4", "--warmup", "0")


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "backend", lambda name: ToyBackend())
    return write_artifact(tmp_path / "toy").path


def test_conditions_on_each_concurrency(optc: Optc, artifact: Path) -> None:
    value = optc("bench", artifact, *SHORT, "--require", "decode_tokens_per_s>0", "--json").json
    assert [(c["case"], c["passed"]) for c in value["conditions"]] == [("1", True), ("2", True)]
    found = optc("bench", artifact, *SHORT, "--require", "decode_tokens_per_s@2>=1e12", "--json")
    assert found.code == 4
    assert found.json["error"]["kind"] == "conditions"
    assert len(found.json["results"]) == 2
    shown = optc("bench", artifact, *SHORT, "--require", "decode_tokens_per_s@2>=1e12")
    assert shown.code == 4
    assert "prefill tok/s" in shown.out
    assert "FAILED" in shown.out
    assert "conditions: decode_tokens_per_s@2 " in shown.err


def test_a_figure_that_was_not_measured_fails(optc: Optc, artifact: Path) -> None:
    found = optc("bench", artifact, *SHORT, "--require", "mbu@1>=0")
    assert found.code == 4
    assert "mbu@1 was not measured" in found.err


def test_a_baseline(optc: Optc, artifact: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(optc("bench", artifact, *SHORT, "--json").out)
    rest = (*SHORT, "--compare", baseline)
    value = optc("bench", artifact, *rest, "--require", "tpot_ms.p50<=1e6x", "--json").json
    compared = {(row["name"], row["case"]) for row in value["compared"]}
    assert ("decode_tokens_per_s", "2") in compared
    assert value["conditions"][0]["baseline"] > 0
    shown = optc("bench", artifact, *rest, "--require", "ttft_ms.p90@1>1e6x")
    assert shown.code == 4
    assert "compared with the baseline" in shown.out
    assert "(1e+06 times the baseline's)" in shown.err
    longer = ("--prompt-tokens", "9", "--output-tokens", "4", "--concurrency", "1")
    other = optc("bench", artifact, *longer, "--rounds", "1", "--compare", baseline)
    assert other.code == 2
    assert "--compare: the baseline measured 8 prompt and 4 output tokens, this run 9" in other.err


def test_conditions_on_a_workload(optc: Optc, artifact: Path, tmp_path: Path) -> None:
    slo = ("--slo", "ttft=100s")
    wanted = ("--require", "goodput.share>=99%", "--require", "e2e_ms.p99<1e6")
    files = ("--junit", tmp_path / "j.xml", "--markdown", tmp_path / "s.md")
    value = optc("bench", artifact, *TRAFFIC, *slo, *wanted, *files, "--json").json
    assert [c["passed"] for c in value["conditions"]] == [True, True]
    cases = ElementTree.parse(tmp_path / "j.xml").getroot().findall(".//testcase")
    assert [case.attrib["name"] for case in cases] == ["--slo", *wanted[1::2]]
    assert "100.0% of the requests meet them" in (tmp_path / "s.md").read_text()


def test_objectives_that_nothing_meets_are_in_the_summary(
    optc: Optc, artifact: Path, tmp_path: Path
) -> None:
    rest = ("--slo", "ttft=0.0001us", "--junit", tmp_path / "j.xml")
    assert optc("bench", artifact, *TRAFFIC, *rest).code == 4
    (failure,) = ElementTree.parse(tmp_path / "j.xml").getroot().findall(".//failure")
    assert failure.attrib["message"] == "0.0% of the requests meet them"


def test_a_summary_without_conditions(optc: Optc, artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.md"
    assert optc("bench", artifact, *SHORT, "--markdown", path).code == 0
    text = path.read_text()
    assert text.startswith("## optc bench toy\n\n### measured\n\n| figure | 1 at once | 2 at once")
    assert "> warning: no MBU and MFU" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--require", "speed>1"), "--require: there is no figure 'speed' in 'speed>1'"),
        (("--require", "e2e_ms.p90>1"), "cannot be told (--workload measures it)"),
        (
            (*TRAFFIC, "--require", "decode_tokens_per_s>1"),
            "decode_tokens_per_s is not measured, so 'decode_tokens_per_s>1' cannot be told (leave "
            "out --workload)",
        ),
        ((*TRAFFIC, "--require", "goodput.share>0.5"), "cannot be told (add --slo)"),
        (
            (*TRAFFIC, "--require", "cost.per_million_tokens<1"),
            "cannot be told (add --price-per-hour)",
        ),
        (("--require", "mbu>"), "--require: 'mbu>' is no condition"),
        (("--require", "mbu@2>0"), "'mbu' has no case '2' (one of 1, 8, 16)"),
        ((*TRAFFIC, "--require", "mbu@1>0"), "'mbu' has no case '1' (leave out the @)"),
        (("--require", "mbu>0.9x"), "refers to a baseline (--compare names one)"),
        (("--compare", "absent.json"), "absent.json: cannot be read"),
        (("--junit", "absent/x"), "--junit: there is no folder absent"),
        (("--profile", "--require", "mbu>0"), "--require: changes nothing with --profile"),
        (("--profile", "--compare", "b"), "--compare: changes nothing with --profile"),
        (("--profile", "--junit", "b"), "--junit: changes nothing with --profile"),
    ],
)
def test_wrong_options_are_found_before_anything_is_measured(
    optc: Optc,
    artifact: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr("optc.load", None)
    found = optc("bench", artifact, *options)
    assert found.code == 2
    assert message in found.err
