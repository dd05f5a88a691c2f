"""``optc compile --recipe auto`` as a command; what recipes lose is made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

import optc as package
from optc import registry
from optc.artifact.artifact import Artifact
from optc.backend import BuildOptions
from optc.compiling.judging.judge import Judgement
from optc.compiling.ladder import few_windows, next_rung
from optc.compiling.ladder.options import LadderOptions
from optc.compiling.ladder.predict import Predictions, predict_rungs
from optc.compiling.text import stages as compiling
from optc.errors import GateError
from optc.proof.gates.measure import judge
from optc.proof.roofline.costs import KernelCost, StepCosts
from optc.proof.roofline.estimate import EngineEstimate
from optc.system.hardware.target import Target
from tests.cli.conftest import Optc, Outcome, nothing_left
from tests.runtime.support.toy import toy_spec
from tests.support.stub import VOCAB, StubBackend

#: Recipes without a text to calibrate with: of 4, 8, 16 and 32 bits.
LADDER = ("int4-fast", "int8-fused", "bf16-fused", "fp32")


class Estimating(StubBackend):
    """Knows what engines will cost: the bytes of their weights."""

    def estimate(self, model: ir.Model, target: Target, options: BuildOptions) -> EngineEstimate:
        values = model.graph.initializers.values()
        size = sum(value.const_value.nbytes for value in values if value.const_value is not None)
        costs = StepCosts("int8", {"all": KernelCost(1, "int8", {"1": float(size)}, {"T": 1.0})})
        spec = toy_spec(max_context=options.max_context, vocab=VOCAB)
        return EngineEstimate(spec, size, costs, file_bytes=size, compile_s=1.0)


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """kl_mean by recipe; change them before compiling."""
    found = {"int4-fast": 0.02, "int8-fused": 0.002, "bf16-fused": 1e-4, "fp32": 1e-7}

    def fake(options: Any, lowered: object, engines: object, *_: object) -> Judgement:
        bounds = options.recipe.gates
        gate = judge("kl_mean", found[options.recipe.name], bounds["kl_mean"])
        return Judgement((gate,), True, (gate,) if gate.passed is False else ())

    monkeypatch.setattr(compiling, "judge", fake)
    monkeypatch.setattr(few_windows, "measure_few", lambda *_: {})
    return found


@pytest.fixture
def compile_auto(
    optc: Optc,
    losses: dict[str, float],
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Optc:
    """Compiles the tiny model with `LADDER` into ``tmp_path/out/a``."""
    backend = Estimating("tvm")
    monkeypatch.setattr(registry, "backend_names", lambda: ("tvm",))
    monkeypatch.setattr(registry, "backend", lambda name: backend)

    def call(*arguments: object, ladder: tuple[str, ...] = LADDER) -> Outcome:
        named = [part for name in ladder for part in ("--ladder", name)]
        output = ("-o", tmp_path / "out/a")
        return optc("compile", tiny_model, "--recipe", "auto", *output, *named, *arguments)

    return call


def outcomes(ladder: dict[str, Any]) -> dict[str, str]:
    return {one["recipe"]: one["outcome"] for one in ladder["rungs"]}


def test_the_smallest_that_holds_becomes_the_artifact(
    compile_auto: Optc, losses: dict[str, float], tmp_path: Path
) -> None:
    value = compile_auto("--gate", "kl_mean=0.0066", "--objective", "size", "--json").json
    expected = {
        "int4-fast": "fell",
        "int8-fused": "chosen",
        "bf16-fused": "not tried",
        "fp32": "not tried",
    }
    assert outcomes(value["ladder"]) == expected
    artifact = Artifact.open(tmp_path / "out/a")
    assert artifact.manifest.recipe["name"] == "int8-fused"
    assert artifact.manifest.gated
    assert [(g.name, g.bound, g.passed) for g in artifact.manifest.gates] == [
        ("kl_mean", 0.0066, True)
    ]
    report = artifact.report()
    assert outcomes(report["ladder"]) == expected
    assert (report["ladder"]["objective"], report["ladder"]["gates"]) == (
        "size",
        {"kl_mean": 0.0066},
    )
    assert not report["ladder"]["default_gates"]
    sizes = [one["predicted"]["artifact_bytes"] for one in report["ladder"]["rungs"]]
    assert sizes == sorted(sizes)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]


def test_the_terminal_shows_every_rung(compile_auto: Optc) -> None:
    outcome = compile_auto("--gate", "kl_mean=0.03")
    assert outcome.code == 0
    lines = [
        line for line in outcome.out.splitlines() if line.split()[:1] and line.split()[0] in LADDER
    ]
    assert [line.split()[0] for line in lines] == list(LADDER)
    assert "ladder for decode, kl_mean=0.03" in outcome.out
    assert "chosen" in lines[0]
    assert "decode/s at most" in outcome.out
    assert "int4-fast: build" in outcome.err


def test_without_gates_there_is_one(compile_auto: Optc) -> None:
    ladder = compile_auto("--json").json["ladder"]
    assert ladder["gates"] == {"kl_mean": 0.01}
    assert ladder["default_gates"]
    assert ladder["chosen"] == "int8-fused"


def test_an_impossible_gate_is_exit_code_4_with_the_ladder_and_the_nearest(
    compile_auto: Optc, tmp_path: Path
) -> None:
    outcome = compile_auto("--gate", "kl_mean=1e-12")
    assert outcome.code == 4
    assert "--recipe auto: no recipe holds kl_mean=1e-12" in outcome.err
    assert "the nearest is fp32 with kl_mean 1e-07" in outcome.err
    assert "--gate kl_mean=1e-07 is likely to hold with fp32" in outcome.err
    assert "ladder for decode" in outcome.out
    assert nothing_left(tmp_path)
    value = compile_auto("--gate", "kl_mean=1e-12", "--json").json
    assert value["error"]["kind"] == "gate"
    assert value["nearest"] == "fp32"
    assert outcomes(value["ladder"])["fp32"] == "fell"
    assert nothing_left(tmp_path)


def test_an_artifact_that_is_there_is_kept_unless_forced(
    compile_auto: Optc, losses: dict[str, float], tmp_path: Path
) -> None:
    assert compile_auto().code == 0
    before = Artifact.open(tmp_path / "out/a").digest
    refused = compile_auto("--gate", "kl_mean=0.1")
    assert refused.code == 2
    assert "already exists" in refused.err
    assert compile_auto("--gate", "kl_mean=1e-12", "--force").code == 4
    assert Artifact.open(tmp_path / "out/a").digest == before
    assert compile_auto("--gate", "kl_mean=0.1", "--force").code == 0
    assert Artifact.open(tmp_path / "out/a").manifest.recipe["name"] == "int4-fast"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--objective", "fast"), "--objective: unknown objective 'fast'"),
        (("--gate", "kl=1"), "--gate: unknown gate 'kl'"),
        (("--set", "no-pass.bits=4"), "--set: unknown pass 'no-pass'"),
        (("--no-gates",), "--no-gates: not with --recipe auto"),
    ],
)
def test_wrong_options_are_seen_before_anything_is_imported(
    compile_auto: Optc, no_import: None, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    outcome = compile_auto(*arguments)
    assert outcome.code == 2
    assert f"error: {message}" in outcome.err
    assert nothing_left(tmp_path)


def test_what_memory_forbids_is_left_out(compile_auto: Optc, tmp_path: Path) -> None:
    outcome = compile_auto("--max-ram", "1MB")
    assert outcome.code == 2
    assert "--max-ram" in outcome.err
    assert nothing_left(tmp_path)
    assert compile_auto("--max-ram", "64GB").code == 0


def test_from_python(
    compile_auto: Optc, tiny_model: Path, tmp_path: Path, losses: dict[str, float]
) -> None:
    artifact = package.compile(
        tiny_model,
        recipe="auto",
        output=tmp_path / "a",
        gate=["kl_mean=0.0066"],
        objective="memory",
        ladder=LADDER,
    )
    assert artifact.report()["ladder"]["chosen"] == "int8-fused"
    with pytest.raises(GateError, match="no recipe holds kl_mean=1e-12"):
        package.compile(tiny_model, "auto", tmp_path / "b", gate="kl_mean=1e-12", ladder=LADDER)
    assert not (tmp_path / "b").exists()


def test_a_failed_gate_of_a_named_recipe_names_what_is_likely_to_hold(
    compile_auto: Optc, optc: Optc, tiny_model: Path, tmp_path: Path, losses: dict[str, float]
) -> None:
    losses["int8-fused"] = 0.0445
    output = ("-o", tmp_path / "out/a")
    outcome = optc("compile", tiny_model, "--recipe", "int8-fused", *output)
    assert outcome.code == 4
    assert "kl_mean: 0.0445 is above the bound 0.0065" in outcome.err
    assert "int8-a16 is likely to hold (predicted: " in outcome.err
    assert " times the bytes, " in outcome.err
    assert "--recipe auto finds and proves the fastest recipe" in outcome.err
    assert nothing_left(tmp_path)


def test_only_what_may_be_named_is_predicted(
    compile_auto: Optc,
    optc: Optc,
    tiny_model: Path,
    tmp_path: Path,
    losses: dict[str, float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses["int8-fused"] = 0.0445
    seen: list[str] = []

    def counting(imported: Any, ladder: LadderOptions, **known: Any) -> Predictions:
        seen.extend(one.recipe.name for one in ladder.compiles)
        return predict_rungs(imported, ladder, **known)

    monkeypatch.setattr(next_rung, "predict_rungs", counting)
    outcome = optc("compile", tiny_model, "--recipe", "int8-fused", "-o", tmp_path / "out/a")
    assert "int8-a16 is likely to hold" in outcome.err
    assert {"int8-fused", "int8-a16"} < set(seen)
    assert not {"int4-fast", "int2-fused", "mixed-3"} & set(seen)


def test_the_ladder_can_be_seen_before(
    compile_auto: Optc, optc: Optc, tiny_model: Path, tmp_path: Path
) -> None:
    named = [part for name in LADDER for part in ("--ladder", name)]
    arguments = ("plan", tiny_model, "--recipe", "auto", "--gate", "kl_mean=0.0066", *named)
    value = optc(*arguments, "--json").json
    assert value["schema"] == "optc.plan.v1"
    assert list(outcomes(value["ladder"])) == list(LADDER)
    assert set(outcomes(value["ladder"]).values()) == {"waiting"}
    assert value["ladder"]["gates"] == {"kl_mean": 0.0066}
    compiled = compile_auto("--gate", "kl_mean=0.0066", "--json").json["ladder"]
    predicted = [
        [one["predicted"] for one in each["rungs"]] for each in (value["ladder"], compiled)
    ]
    assert predicted[0] == predicted[1], "a compile tries what the plan says"
    shown = optc(*arguments, "--objective", "memory")
    assert shown.code == 0
    assert "ladder for memory, kl_mean=0.0066" in shown.out
    found = package.plan_ladder(tiny_model, ladder=LADDER, gate=["kl_mean=0.0066"])
    assert json.loads(json.dumps(found.to_json()))["ladder"]["objective"] == "decode"
    assert "int4-fast" in found._repr_html_()
    assert repr(found).startswith("<optc.LadderPlan of tiny")
