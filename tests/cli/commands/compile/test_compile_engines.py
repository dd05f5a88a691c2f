"""Several engines in one artifact: their names, what they share, and their gates."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.artifact import Artifact
from optc.compiling.resolving.engines import split_engines
from optc.system.hardware.target import host_features, known_targets
from tests.cli.conftest import Optc
from tests.support.stub import Runner, StubBackend


def test_engines_have_names_and_folders_of_their_own(compile_engines: Optc, tmp_path: Path) -> None:
    outcome = compile_engines("tvm:x86-64-v3", "tvm", "aot:sm_89,sm_120")
    assert outcome.code == 0, outcome.err
    manifest = Artifact.open(tmp_path / "out/a").manifest
    assert [(e.name, e.backend, e.target.name, e.folder) for e in manifest.engines] == [
        ("tvm-x86-64-v3", "tvm", "x86-64-v3", "engines/tvm-x86-64-v3"),
        ("tvm-native", "tvm", "native", "engines/tvm-native"),
        ("aot-sm_89+sm_120", "aot", "cuda:sm_89+sm_120", "engines/aot-sm_89+sm_120"),
    ]
    assert {engine.role for engine in manifest.engines} == {"target"}
    assert {gate.engine for gate in manifest.gates} == {e.name for e in manifest.engines}
    assert not any(tmp_path.rglob("*scratch*"))


def test_weights_that_fit_several_engines_are_written_once(
    compile_engines: Optc, backends: dict[str, StubBackend], tmp_path: Path
) -> None:
    value = compile_engines(
        "tvm:x86-64-v3", "tvm", "aot:sm_89", options=("--no-gates", "--json")
    ).json
    first, second = backends["tvm"].built
    assert first[1].shared is None
    assert second[1].shared is not None
    assert second[1].shared.folder == "../tvm-x86-64-v3"
    engines = value["engines"]
    assert not any("build" in entry for entry in engines), "report.json has the tables"
    assert {entry["name"]: entry["weights_of"] for entry in engines} == {
        "tvm-x86-64-v3": "tvm-x86-64-v3",
        "tvm-native": "tvm-x86-64-v3",
        "aot-sm_89": "aot-sm_89",
    }
    assert [entry["weight_bytes"] for entry in engines] == [4096, 0, 4096]
    assert [entry["bytes"] for entry in engines] == [4102, 6, 4112]
    # weights.bin of both backends happen to be equal, as are engine.bin of the two for the CPU
    folder = tmp_path / "out/a/engines"
    assert (folder / "tvm-x86-64-v3/weights.bin").samefile(folder / "aot-sm_89/weights.bin")
    assert value["storage"]["linked_bytes"] == 4096 + 6
    assert value["storage"]["duplicated_bytes"] == 4096, "in a form of its own, as it says"


def test_an_artifact_stays_right_when_its_links_become_copies(
    compile_engines: Optc, tmp_path: Path
) -> None:
    assert compile_engines("tvm:x86-64-v3", "aot:sm_89").code == 0
    copied = shutil.copytree(tmp_path / "out/a", tmp_path / "copy")
    assert Artifact.open(copied).digest == Artifact.open(tmp_path / "out/a").digest


def test_every_engine_that_runs_here_is_judged_against_one_reference(
    compile_engines: Optc, measured: list[Any], tmp_path: Path
) -> None:
    value = compile_engines("tvm:x86-64-v3", "tvm", options=("--json",)).json
    (first, _), (second, _) = measured
    assert first is second
    found = [(g["engine"], g["name"], g["passed"], g["measured_on"]) for g in value["gates"]]
    assert found == [
        ("tvm-x86-64-v3", "kl_mean", True, "engine"),
        ("tvm-native", "kl_mean", True, "engine"),
    ]
    facts = Artifact.open(tmp_path / "out/a").report()["evaluation"]
    assert {name: one["tokens"] for name, one in facts.items()} == {
        "tvm-x86-64-v3": 640,
        "tvm-native": 640,
    }


def test_an_engine_that_cannot_run_here_has_gates_without_values(
    compile_engines: Optc, measured: list[Any], tmp_path: Path
) -> None:
    outcome = compile_engines("tvm", "aot:sm_89", options=("--json", "--keep-failed"))
    assert outcome.code == 4
    names = "kl_mean, kl_p99, top1_agreement, perplexity_ratio"
    assert f"aot-sm_89: {names}: it needs a CUDA device" in outcome.json["error"]["message"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.failed"]
    value = compile_engines("tvm", "aot:sm_89", options=("--json", "--allow-unmeasured")).json
    found = {(g["engine"], g["name"]): g for g in value["gates"]}
    assert found["tvm-native", "kl_mean"]["passed"] is True
    null = found["aot-sm_89", "kl_mean"]
    assert (null["value"], null["passed"], null["measured_on"]) == (None, None, "none")
    assert null["reason"].startswith("it needs a CUDA device")
    assert any(
        f"gates without a verdict: aot-sm_89: {names}: it" in text for text in value["warnings"]
    )
    assert any("no installed backend runs lowered ONNX" in text for text in value["warnings"])


@pytest.mark.parametrize("gates", [(), ("--gate", "kl_mean=none")])
def test_gates_that_nobody_can_measure_here_are_refused_before_anything_begins(
    compile_engines: Optc,
    backends: dict[str, StubBackend],
    measured: list[Any],
    no_import: None,
    tmp_path: Path,
    gates: tuple[str, ...],
) -> None:
    outcome = compile_engines("tvm", "aot:sm_89", options=gates)
    assert outcome.code == 2
    told = "error: gates: the gates of aot-sm_89 cannot be measured here: it needs a CUDA device"
    assert outcome.err.startswith(told)
    assert "(--allow-unmeasured lets such engines through" in outcome.err
    assert not backends["tvm"].built
    assert not (tmp_path / "out").exists()


def test_each_engine_has_a_table_whose_names_are_whole_and_a_reason_once(
    compile_engines: Optc, measured: list[Any]
) -> None:
    outcome = compile_engines("tvm", "aot:sm_89", options=("--allow-unmeasured",))
    first, second = outcome.out.split("gates of ")[1:]
    assert first.startswith("tvm-native")
    assert second.startswith("aot-sm_89")
    assert "top1_agreement" in second
    assert second.count("it needs a CUDA device") == 1
    assert "…" not in outcome.out


def test_what_it_was_lowered_to_is_judged_instead(
    compile_engines: Optc,
    backends: dict[str, StubBackend],
    measured: list[Any],
    tmp_path: Path,
) -> None:
    backends["runner"] = Runner("runner")
    failed = compile_engines("aot:sm_89", options=("--keep-failed",))
    assert failed.code == 4, "it says nothing of the engine"
    options = ("--json", "--allow-unmeasured")
    value = compile_engines("aot:sm_89", options=options).json
    kl = [g for g in value["gates"] if g["name"] == "kl_mean"]
    assert [(g["measured_on"], g["passed"]) for g in kl] == [("none", None), ("lowered-onnx", True)]
    assert {speed for _, speed in measured} == {False}
    manifest = Artifact.open(tmp_path / "out/a").manifest
    verdicts = [(g.passed, g.lowered) for g in manifest.gates if g.name == "kl_mean"]
    assert verdicts == [(None, False), (True, True)]
    tight = ("--json", "--allow-unmeasured", "--force", "--gate", "kl_mean=1e-8")
    failed = compile_engines("aot:sm_89", options=tight)
    assert failed.code == 4
    assert failed.json["error"]["message"].startswith("kl_mean (lowered ONNX): 1e-07 is above")


def test_a_draft_is_built_for_every_engine(
    compile_engines: Optc, tiny_model: Path, tmp_path: Path
) -> None:
    options = ("--no-gates", "--draft", tiny_model, "--self-draft", "1")
    outcome = compile_engines("tvm", "aot:sm_89", options=options)
    assert outcome.code == 2
    assert "the aot backend for cuda:sm_89 cannot read the weights of another" in outcome.err
    assert compile_engines("tvm", "aot:sm_89", options=options[:3]).code == 0
    engines = Artifact.open(tmp_path / "out/a").manifest.engines
    assert [(e.name, e.role, e.backend) for e in engines[2:]] == [
        ("draft-tvm-native", "draft", "tvm"),
        ("draft-aot-sm_89", "draft", "aot"),
    ]


@pytest.mark.parametrize(
    ("engines", "options", "code", "message"),
    [
        (["tvn:native"], [], 2, "--backend: unknown backend 'tvn' (did you mean 'tvm'?)"),
        (["tvm:x86-64-v5"], [], 2, "--backend tvm:x86-64-v5: unknown target 'x86-64-v5'"),
        (["tvm:"], [], 2, "--backend tvm:: unknown target ''"),
        (["aot:sm_88"], [], 2, "--backend aot:sm_88: unknown CUDA architecture 'sm_88'"),
        (
            ["aot"],
            [],
            2,
            "--backend aot:native: it compiles for CUDA targets (--backend tvm:native)",
        ),
        (["tvm", "tvm:native"], [], 2, "--backend: tvm for native is asked for twice"),
        (["tvm:native"], ["--target", "sm_89"], 2, "--target sm_89: every --backend names its"),
        (["tvm", ""], [], 2, "--backend: unknown backend ''"),
    ],
)
def test_bad_engines_are_named(
    compile_engines: Optc,
    tmp_path: Path,
    engines: list[str],
    options: list[str],
    code: int,
    message: str,
) -> None:
    outcome = compile_engines(*engines, options=("--no-gates", *options))
    assert outcome.code == code
    assert outcome.err.splitlines()[-1].startswith(f"error: {message}")
    assert not (tmp_path / "out").exists()


def test_the_target_is_that_of_backends_that_name_none(
    compile_engines: Optc, tmp_path: Path
) -> None:
    assert (
        compile_engines("tvm,aot:sm_89", options=("--no-gates", "--target", "x86-64-v3")).code == 0
    )
    names = [e.name for e in Artifact.open(tmp_path / "out/a").manifest.engines]
    assert names == ["tvm-x86-64-v3", "aot-sm_89"]


def test_commas_separate_engines_and_architectures() -> None:
    assert split_engines("a,b:sm_89,sm_120,c:native") == ["a", "b:sm_89+sm_120", "c:native"]


def test_commands_run_the_best_engine_or_the_named_one(
    compile_engines: Optc, optc: Optc, tmp_path: Path
) -> None:
    path = tmp_path / "out/a"
    assert compile_engines("tvm:x86-64-v3", "tvm", "aot:sm_89").code == 0
    call = ("run", path, "--prompt", "ab", "--max-tokens", "2")
    outcome = optc(*call)
    # A machine without more instructions than x86-64-v3 has two equal engines.
    best, other = "tvm-native (tvm for native)", "tvm-x86-64-v3"
    if host_features() <= set(known_targets()["x86-64-v3"].features):
        best, other = "tvm-x86-64-v3 (tvm for x86-64-v3)", "tvm-native"
        assert "it was compiled first" in outcome.err
    assert f"engine {best}; not {other}: it fits, but" in outcome.err
    assert "; not aot-sm_89: it needs a CUDA device" in outcome.err
    value = optc(*call, "--engine", "tvm-x86-64-v3", "--json").json
    assert value["engine"]["name"] == "tvm-x86-64-v3"
    rest = ("--output-tokens", "2", "--concurrency", "1", "--rounds", "1", "--json")
    bench = optc("bench", path, "--engine", "tvm-x86-64-v3", *rest).json
    assert (bench["target"], bench["engine"]["name"]) == ("x86-64-v3", "tvm-x86-64-v3")
    refused = optc(*call, "--engine", "aot-sm_89")
    assert refused.code == 3
    assert "engine 'aot-sm_89' (aot for cuda:sm_89): it needs a CUDA device" in refused.err
    entries = {entry["name"]: entry for entry in optc("inspect", path, "--json").json["engines"]}
    assert entries["tvm-native"]["loads_here"] is True
    assert entries["aot-sm_89"]["reason"].startswith("it needs a CUDA device")
    assert "aot-sm_89" in optc("inspect", path).out
