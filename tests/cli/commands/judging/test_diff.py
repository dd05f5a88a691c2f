"""optc diff."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from optc import registry
from optc.artifact.manifest import Manifest, Source
from tests.cli.conftest import Optc
from tests.proof.conditions.differences.artifacts import WEIGHTS, gate, write_changed
from tests.runtime.support.artifacts import ToyBackend, write_artifact


@pytest.fixture
def old(tmp_path: Path) -> Path:
    report = {"gates": [gate("kl_mean", 0.01), gate("decode_speedup", None)], "seconds": 2.0}
    return write_changed(tmp_path / "old", report=report).path


@pytest.fixture
def new(tmp_path: Path) -> Path:
    report = {"gates": [gate("kl_mean", 0.012), gate("decode_speedup", 3.0)], "seconds": 1.0}

    def change(manifest: Manifest) -> Manifest:
        return replace(manifest, packages={"optc": "0.2.0"}, recipe={"name": "int4"})

    return write_changed(tmp_path / "new", flip=600, change=change, report=report).path


def test_what_differs(optc: Optc, old: Path, new: Path) -> None:
    value = optc("diff", old, new, "--json").json
    assert value["same"] is False
    assert value["recipe"] == [{"key": "name", "a": "fp32", "b": "int4"}]
    assert value["passes"] == []
    assert value["versions"] == [{"key": "optc", "a": "0.1.0", "b": "0.2.0"}]
    assert [(g["name"], g["a"], g["b"]) for g in value["gates"]] == [
        ("kl_mean", 0.01, 0.012),
        ("decode_speedup", None, 3),
    ]
    (weights,) = value["weights"]
    assert (weights["changed"], weights["same"]) == (1, 1)
    assert (value["speed"], value["warnings"]) == (None, [])
    assert "conditions" not in value
    shown = optc("diff", old, new)
    assert shown.code == 0
    for text in ("int4", "weights of target: 1 of 2 tensors differ", "0.012", "equal: passes"):
        assert text in shown.out


def test_the_same_artifact(optc: Optc, old: Path) -> None:
    shown = optc("diff", old, old)
    assert "the same artifact: every file, the recipe and the verdicts are equal" in shown.out
    value = optc("diff", old, old, "--json", "--require", "weights_changed==0").json
    assert value["same"] is True
    assert value["conditions"][0]["passed"] is True


def test_conditions_are_judged(optc: Optc, old: Path, new: Path) -> None:
    good = ("--fail-on", "kl_mean>1.3x", "--require", "bytes<=1x", "--require", "seconds<=1.5")
    assert optc("diff", old, new, *good).code == 0
    bad = ("--fail-on", "kl_mean>1.1x", "--fail-on", "weights_changed>2")
    found = optc("diff", old, new, *bad, "--json")
    assert found.code == 4
    assert found.json["schema"] == "optc.error.v1"
    assert found.json["error"]["kind"] == "conditions"
    assert [c["passed"] for c in found.json["conditions"]] == [False, True]
    assert {"a", "b", "gates", "weights"} <= set(found.json)
    shown = optc("diff", old, new, *bad)
    assert (shown.code, "FAILED" in shown.out) == (4, True)
    assert "conditions: kl_mean@target 0.012 is > 0.011 (1.1 times the baseline's)" in shown.err


def test_a_figure_that_was_not_measured_fails(optc: Optc, old: Path, new: Path) -> None:
    found = optc("diff", old, new, "--fail-on", "decode_speedup<0.9x")
    assert found.code == 4
    assert "the baseline has no decode_speedup@target" in found.err
    assert optc("diff", new, old, "--require", "decode_speedup>0").code == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--fail-on", "kl_mean"), "--fail-on or --require: 'kl_mean' is no condition"),
        (("--fail-on", "kl_men>1"), "there is no figure 'kl_men' in 'kl_men>1' (did you mean"),
        (("--require", "kl_mean@cpu<1"), "'kl_mean' has no case 'cpu' (one of target"),
        (("--rounds", "3"), "--rounds: needs --speed"),
        (
            ("--fail-on", "decode_tokens_per_s<0.9x"),
            "decode_tokens_per_s is not measured, so 'decode_tokens_per_s<0.9x' cannot be told "
            "(add --speed)",
        ),
        (("--engine", "target"), "--engine: needs --speed"),
        (("--speed", "--concurrency", "0"), "--concurrency: '0' is no list of counts"),
        (("--junit", "absent/j.xml"), "--junit: there is no folder absent"),
        (("--markdown", "/"), "--markdown: / is a folder"),
    ],
)
def test_wrong_options_are_refused(
    optc: Optc, old: Path, new: Path, options: tuple[str, ...], message: str
) -> None:
    found = optc("diff", old, new, *options)
    assert found.code == 2
    assert message in found.err


def test_summaries(optc: Optc, old: Path, new: Path, tmp_path: Path) -> None:
    files = ("--markdown", tmp_path / "s.md", "--junit", tmp_path / "s.xml")
    assert optc("diff", old, new, "--fail-on", "kl_mean>1.1x", *files).code == 4
    text = (tmp_path / "s.md").read_text()
    assert "**FAILED**: 1 of 1" in text
    assert "### weights of target: 1 of 2 tensors differ" in text
    root = ElementTree.parse(tmp_path / "s.xml").getroot()
    assert root.attrib["failures"] == "1"
    assert root.findall(".//failure")[0].attrib["message"].startswith("kl_mean@target 0.012")


def test_reports_instead_of_artifacts(optc: Optc, old: Path, new: Path, tmp_path: Path) -> None:
    report = old / "report.json"
    value = optc("diff", report, new, "--json", "--fail-on", "kl_mean>1.3x").json
    assert [value[key] for key in ("same", "recipe", "passes", "versions", "weights")] == [None] * 5
    assert value["a"] == {"path": str(report), "digest": None, "model": None, "source": None}
    (warning,) = value["warnings"]
    assert warning == f"{report} is a report: it says nothing of recipe, versions and weights"
    assert optc("diff", report, new, "--fail-on", "kl_mean>1.1x").code == 4
    inspected = tmp_path / "inspected.json"
    inspected.write_text(optc("inspect", old, "--json").out)
    value = optc("diff", inspected, new, "--json").json
    assert value["recipe"] == [{"key": "name", "a": "fp32", "b": "int4"}]
    assert (value["weights"], value["warnings"]) == (None, [])
    no_speed = optc("diff", inspected, new, "--speed")
    assert (no_speed.code, "is no artifact" in no_speed.err) == (2, True)


def test_what_cannot_be_compared_is_refused(optc: Optc, old: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "n.json"
    nothing.write_text("{}")
    found = optc("diff", old, nothing)
    assert (found.code, "n.json: holds no report (give an artifact," in found.err) == (2, True)
    nothing.write_text("{")
    assert optc("diff", nothing, old).code == 5
    assert optc("diff", tmp_path / "absent", old).code == 2


def test_a_damaged_artifact_is_not_compared(optc: Optc, old: Path, new: Path) -> None:
    data = bytearray((old / WEIGHTS).read_bytes())
    data[3] ^= 1
    (old / WEIGHTS).write_bytes(data)
    found = optc("diff", old, new)
    assert found.code == 5
    assert "the file is corrupted" in found.err


def test_another_source_is_a_warning(optc: Optc, old: Path, tmp_path: Path) -> None:
    def change(manifest: Manifest) -> Manifest:
        return replace(manifest, source=Source("toy", "cd" * 32, "llama", {}))

    other = write_changed(tmp_path / "other", change=change).path
    (warning,) = optc("diff", old, other, "--json").json["warnings"]
    assert warning == "they are not of one source model: other config or weights"


def test_speed_is_measured_in_turns(
    optc: Optc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    a, b = (write_artifact(tmp_path / name).path for name in "ab")
    short = ("--rounds", "2", "--output-tokens", "4", "--prompt-tokens", "9")
    rest = ("--speed", *short, "--concurrency", "1,2")
    value = optc("diff", a, b, *rest, "--json", "--require", "decode_tokens_per_s@2>0.0001x").json
    assert [(s["metric"], s["concurrency"]) for s in value["speed"]] == [
        (metric, count)
        for count in (1, 2)
        for metric in ("prefill_tokens_per_s", "decode_tokens_per_s", "ttft_ms", "tpot_ms")
    ]
    assert all(one["low"] <= one["ratio"] <= one["high"] for one in value["speed"])
    (verdict,) = value["conditions"]
    assert (verdict["case"], verdict["passed"]) == ("2", True)
    shown = optc("diff", a, b, *rest, "--fail-on", "decode_tokens_per_s<10000x")
    assert shown.code == 4
    assert "speed, measured in turns: medians, and the rounds' ratios" in shown.out
    (warning,) = json.loads(optc("diff", a, b, "--json").out)["warnings"]
    assert "weights of the engine target are not compared" in warning
