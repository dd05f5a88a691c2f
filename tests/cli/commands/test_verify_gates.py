"""``optc verify --gates``: gates that could not be measured where the artifact was compiled."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.artifact import Artifact
from optc.compiling.judging import engine_gates, verify_gates
from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from optc.proof.gates import measure
from optc.system.hardware.machine import Machine
from tests.cli.conftest import Optc

GPU = Machine(frozenset(), (89,), "")


@pytest.fixture
def unjudged(compile_engines: Optc, measured: list[Any], tmp_path: Path) -> Path:
    """An artifact with an engine for a GPU that this machine lacks, beside one for its CPU."""
    options = ("--allow-unmeasured", "--gate", "decode_speedup=none")
    assert compile_engines("tvm", "aot:sm_89", options=options).code == 0
    measured.clear()
    return tmp_path / "out/a"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has the GPU now."""
    for module in (engine_gates, verify_gates):
        monkeypatch.setattr(module, "this_machine", lambda: GPU)


@pytest.fixture
def other_model(tiny_model: Path, tmp_path: Path) -> Path:
    """A model whose config differs from that of the tiny one."""
    other = shutil.copytree(tiny_model, tmp_path / "other")
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    return other


def test_they_are_measured_where_the_engine_runs(
    optc: Optc, unjudged: Path, gpu: None, measured: list[Any], tiny_model: Path
) -> None:
    before = Artifact.open(unjudged)
    call = ("verify", unjudged, "--gates", "--reference", tiny_model)
    value = optc(*call, "--json").json
    assert value["digest"] == before.digest == Artifact.open(unjudged).digest
    assert [(g["engine"], g["name"], g["passed"]) for g in value["gates"]] == [
        ("aot-sm_89", "kl_mean", True)
    ]
    assert len(measured) == 1, "the engine for the CPU has its verdicts"
    report = Artifact.open(unjudged).report()
    verdicts = {(g["engine"], g["name"]): g["passed"] for g in report["gates"]}
    assert verdicts["aot-sm_89", "kl_mean"] is True
    assert verdicts["tvm-native", "kl_mean"] is True
    assert [entry["engines"] for entry in report["verified"]] == [["aot-sm_89"]]
    assert report["verified"][0]["machine"]["cpu"]
    assert "kl_mean" in optc(*call).out


def test_inspect_says_which_gates_are_open(optc: Optc, unjudged: Path) -> None:
    line = "gates      passed: 1 of 1 on tvm-native; open: 4 of 4 on aot-sm_89"
    assert line in optc("inspect", unjudged).out


def test_one_that_fails_is_exit_code_4(
    optc: Optc, unjudged: Path, gpu: None, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(model: object, executable: object, windows: object, bounds: Any, **_: Any) -> Any:
        return measure.GateReport((measure.judge("kl_mean", 0.5, bounds["kl_mean"]),), {})

    monkeypatch.setattr(measure, "measure_gates", bad)
    outcome = optc("verify", unjudged, "--gates", "--reference", tiny_model, "--json")
    assert outcome.code == 4
    assert outcome.json["error"]["message"] == ("aot-sm_89: kl_mean: 0.5 is above the bound 1e-06")
    assert outcome.json["gates"][0]["value"] == 0.5
    kept = {(g["engine"], g["passed"]) for g in Artifact.open(unjudged).report()["gates"]}
    assert ("aot-sm_89", False) in kept


def test_a_machine_that_cannot_run_it_either_says_so(
    optc: Optc, unjudged: Path, tiny_model: Path, other_model: Path
) -> None:
    before = (unjudged / "report.json").read_bytes()
    outcome = optc("verify", unjudged, "--gates", "--reference", tiny_model)
    assert outcome.code == 4
    assert (
        "aot-sm_89: kl_mean, kl_p99, top1_agreement, perplexity_ratio: it needs a CUDA"
        in outcome.err
    )
    assert (unjudged / "report.json").read_bytes() == before
    outcome = optc("verify", unjudged, "--gates", "--reference", other_model)
    assert outcome.code == 2
    assert "is not the model that tiny was compiled from" in outcome.err


def test_a_reference_that_changes_meanwhile_gives_no_verdict(
    optc: Optc, unjudged: Path, gpu: None, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(model: object, executable: object, windows: object, bounds: Any, **_: Any) -> Any:
        os.utime(tiny_model / "model.safetensors")
        return measure.GateReport((measure.judge("kl_mean", 0.0, bounds["kl_mean"]),), {})

    monkeypatch.setattr(measure, "measure_gates", slow)
    before = (unjudged / "report.json").read_bytes()
    outcome = optc("verify", unjudged, "--gates", "--reference", tiny_model)
    assert outcome.code == 2
    assert "model.safetensors: changed while it was being read" in outcome.err
    assert (unjudged / "report.json").read_bytes() == before


def test_an_artifact_with_all_verdicts_needs_nothing(
    optc: Optc,
    compile_engines: Optc,
    measured: list[Any],
    tiny_model: Path,
    other_model: Path,
    tmp_path: Path,
) -> None:
    gates = [f"{name}=none" for name in ("kl_p99", "top1_agreement", "perplexity_ratio")]
    options = [part for gate in gates for part in ("--gate", gate)]
    assert compile_engines("tvm", options=tuple(options)).code == 0
    path = tmp_path / "out/a"
    value = optc("verify", path, "--gates", "--reference", tiny_model, "--json").json
    assert (value["gates"], value["warnings"]) == ([], ["no gate is without a verdict"])
    error = optc("verify", path, "--gates", "--reference", other_model, "--json").json["error"]
    assert error["where"] == str(other_model)
    assert "is not the model that tiny was compiled from" in error["message"]
    assert "folders of models" in optc("verify", path, "--gates", "--reference", tmp_path).err


def test_another_model_is_no_reference(
    optc: Optc,
    unjudged: Path,
    gpu: None,
    tiny_model: Path,
    imported_tiny: ImportedModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = dataclasses.replace(
        imported_tiny, model=imported_tiny.model.clone(), source_digest="00" * 32
    )
    monkeypatch.setattr(importer, "import_model", lambda folder, allow_remote_code: other)
    outcome = optc("verify", unjudged, "--gates", "--reference", tiny_model)
    assert outcome.code == 2
    assert "is not the model that tiny was compiled from" in outcome.err


def test_usage(optc: Optc, unjudged: Path, tmp_path: Path) -> None:
    outcome = optc("verify", unjudged, "--gates")
    assert outcome.code == 2
    assert (
        "--gates: needs the model that the artifact was compiled from (--reference" in outcome.err
    )
    copied = shutil.copytree(unjudged, tmp_path / "copy")
    (copied / "engines/tvm-native/weights.bin").write_bytes(b"other")
    assert optc("verify", copied, "--gates", "--reference", tmp_path).code == 5
    assert optc("verify", copied, "--gates").code == 2, "asked for before anything is checked"
