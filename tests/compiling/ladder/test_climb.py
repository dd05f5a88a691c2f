"""Climbing: attempts that are made up, in real folders."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.writer import ArtifactWriter
from optc.compiling.judging.judge import Judgement
from optc.compiling.ladder import climb as climbing
from optc.compiling.ladder import few_windows
from optc.compiling.ladder.climb import climb
from optc.compiling.ladder.options import LadderOptions
from optc.compiling.ladder.predict import Predictions
from optc.compiling.ladder.record import NoRungHeldError
from optc.compiling.ladder.rungs import Rung
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.options import ResolvedOptions
from optc.compiling.stages.row import Attempt, BuiltEngines, Done, JudgeStage, Row, Stage
from optc.compiling.stages.shared import SharedWork
from optc.errors import InputError, UnsupportedError
from optc.proof.gates.measure import judge
from optc.proof.reference import blockwise
from optc.proof.reference.text import EvalWindows
from optc.system.options import CompileOptions
from tests.compiling.ladder.rung_cases import rung

#: By the objective; the second one is compiled soon.
RUNGS = (
    rung("int4-fused", 400.0, 0.008, compile_s=300),
    rung("int8-fused", 200.0, 0.0015),
    rung("bf16-fused", 100.0, 0.0001),
    rung("fp32", 50.0, 0.000001),
)
WINDOWS = EvalWindows(np.zeros((8, 5), np.int32), "text", "windows")


@dataclass
class Mountain:
    """What each recipe loses, and what was done.

    Attributes:
        losses: kl_mean by recipe, of all windows.
        few: The same of few windows; empty where the engine does not run here.
        broken: Errors of builds, by recipe.
        done: What was called, in order.
        artifact, engines, ladder: What was finished.
    """

    losses: Mapping[str, float]
    few: dict[str, float] = field(default_factory=dict)
    broken: dict[str, Exception] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    artifact: Artifact | None = None
    engines: list[str] = field(default_factory=list)
    ladder: dict[str, Any] = field(default_factory=dict)


@dataclass
class Asked:
    """What an attempt is made with."""

    mountain: Mountain
    options: ResolvedOptions

    @property
    def name(self) -> str:
        return self.options.recipe.name


class Build(Stage):
    """Writes a file as its engine, and one in its scratch folder."""

    name: ClassVar[str] = "build"

    def run(self, done: Done) -> BuiltEngines:
        asked = done[Asked]
        asked.mountain.done.append(f"build {asked.name}")
        engine = done[ArtifactWriter].subfolder("engines/target") / "engine.bin"
        engine.write_text(asked.name)
        (done.scratch / "lowered.onnx").write_text("lowered")
        if asked.name in asked.mountain.broken:
            raise asked.mountain.broken[asked.name]
        asked.options.progress("build", 1, 2)
        return BuiltEngines([cast(Any, SimpleNamespace(entry=SimpleNamespace(name=asked.name)))])


class JudgeIt(JudgeStage):
    """Loses what its mountain says."""

    def run(self, done: Done) -> Judgement:
        asked = done[Asked]
        asked.mountain.done.append(f"judge {asked.name}")
        folder = done[ArtifactWriter].folder
        assert (folder / "engines/target/engine.bin").read_text() == asked.name
        bound = asked.options.recipe.gates["kl_mean"]
        gate = judge("kl_mean", asked.mountain.losses.get(asked.name), bound, "no clock")
        failed = (gate,) if gate.passed is False else ()
        return Judgement((gate,), measured=True, failed=failed)


class Finish(Stage):
    """Leaves what lies in the artifact's folder."""

    name: ClassVar[str] = "write"

    def run(self, done: Done) -> None:
        asked, folder = done[Asked], done[ArtifactWriter].folder
        asked.mountain.done.append(f"finish {asked.name}")
        assert folder.parent.name == "out", "it is in the artifact's own folder now"
        asked.mountain.artifact = object.__new__(Artifact)
        asked.mountain.engines = [p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()]
        asked.mountain.ladder = done.report["ladder"]
        done.leave(asked.mountain.artifact)


ROW = Row((Build(),), JudgeIt(), (Finish(),))


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was done with the one reference."""
    done: list[str] = []
    opened = SimpleNamespace(close=lambda: done.append("close"))
    importlib.import_module(
        "optc.proof.reference.two_streams"
    )  # else it would import the fake for good
    monkeypatch.setattr(blockwise, "BlockwiseReference", lambda model, threads: opened)
    yield done
    assert done in ([], ["close"])


def climbed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mountain: Mountain,
    bound: float = 0.01,
    rungs: tuple[Rung, ...] = RUNGS,
    progress: Any = None,
) -> Any:
    """The mountain, when `climb` is done."""
    monkeypatch.setattr(
        climbing,
        "predict_rungs",
        lambda imported, options: Predictions(rungs, {"odd": "it suits nobody"}, cast(Any, None)),
    )
    monkeypatch.setattr(climbing, "windows_of", lambda done: WINDOWS)

    def measure_few(entry: Any, *_: Any) -> dict[str, float]:
        return {"kl_mean": mountain.few[entry.name]} if entry.name in mountain.few else {}

    monkeypatch.setattr(few_windows, "measure_few", measure_few)
    told = progress or (lambda *_: None)
    compiles = tuple(
        SimpleOptions(load_recipe(one.recipe, gates=[f"kl_mean={bound}"]), told) for one in rungs
    )
    options = LadderOptions(
        CompileOptions(recipe="auto"),
        "decode",
        {"kl_mean": bound},
        False,
        tmp_path / "out/a",
        cast(Any, compiles),
        {},
        {},
        progress=told,
    )
    with ArtifactWriter(options.output) as writer, writer.scratch() as scratch:

        def begin(options: ResolvedOptions, folder: Path) -> Any:
            done = Done(options.progress, scratch=folder)
            done.leave(Asked(mountain, options), writer.in_folder(folder / "artifact"))
            return Attempt(done.leave(CompileOptions()), ROW)

        shared = SharedWork(cast(Any, SimpleNamespace(name="model")))
        assert climb(options, shared, begin, writer, scratch) is mountain.artifact
        return mountain


@dataclass(frozen=True)
class SimpleOptions:
    """What of `ResolvedOptions` is used here."""

    recipe: Any
    progress: Any


def test_the_best_that_holds_is_finished_although_it_was_not_the_last_to_be_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: list[str]
) -> None:
    mountain = Mountain({"int8-fused": 0.001, "int4-fused": 0.02}, few={"int4-fused": 0.011})
    artifact = climbed(tmp_path, monkeypatch, mountain)
    assert mountain.done == [
        *("build int8-fused", "judge int8-fused"),
        *("build int4-fused", "judge int4-fused"),
        "finish int8-fused",
    ]
    assert artifact.engines == ["int8-fused"], "no file of the one that fell"
    assert reference == ["close"]
    rungs = {one["recipe"]: one for one in artifact.ladder["rungs"]}
    assert [one["outcome"] for one in rungs.values()] == [
        *("fell", "chosen", "not tried", "not tried"),
        "left out",
    ]
    assert rungs["int4-fused"]["why"] == "kl_mean: 0.02 is above the bound 0.01"
    assert rungs["int4-fused"]["windows"] == 8
    assert rungs["int4-fused"]["seconds"] > 0
    assert rungs["int8-fused"]["values"] == {"kl_mean": 0.001}
    assert rungs["odd"]["why"] == "it suits nobody"
    assert artifact.ladder["chosen"] == "int8-fused"


def test_a_faster_one_takes_the_place_of_one_that_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: list[str]
) -> None:
    mountain = Mountain({"int8-fused": 0.001, "int4-fused": 0.009})
    artifact = climbed(tmp_path, monkeypatch, mountain)
    assert artifact.engines == ["int4-fused"]
    outcomes = {one["recipe"]: one["outcome"] for one in artifact.ladder["rungs"]}
    assert outcomes["int4-fused"] == "chosen"
    assert outcomes["int8-fused"] == "held"


def test_few_windows_are_enough_to_fall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: list[str]
) -> None:
    mountain = Mountain({"bf16-fused": 0.0001}, few={"int8-fused": 0.0445, "bf16-fused": 0.0001})
    artifact = climbed(tmp_path, monkeypatch, mountain)
    assert "judge int8-fused" not in mountain.done
    assert artifact.engines == ["bf16-fused"]
    fell = artifact.ladder["rungs"][1]
    assert (fell["outcome"], fell["windows"]) == ("fell", few_windows.FEW)
    assert fell["why"] == "kl_mean 0.0445 of 4 windows"
    assert artifact.ladder["rungs"][0]["outcome"] == "skipped"


def test_one_that_cannot_be_built_falls_and_the_others_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: list[str]
) -> None:
    broken: dict[str, Exception] = {"int8-fused": UnsupportedError("no such kernel", where="node")}
    mountain = Mountain({"bf16-fused": 0.0001, "int4-fused": 0.1}, broken=broken)
    artifact = climbed(tmp_path, monkeypatch, mountain)
    assert artifact.engines == ["bf16-fused"]
    assert artifact.ladder["rungs"][1]["why"] == "node: no such kernel"


def test_where_none_can_be_built_the_first_error_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: list[str]
) -> None:
    broken: dict[str, Exception] = {
        one.recipe: InputError(f"{one.recipe} does not fit", where="--max-ram") for one in RUNGS
    }
    with pytest.raises(InputError, match="--max-ram: int8-fused does not fit"):
        climbed(tmp_path, monkeypatch, Mountain({}, broken=broken))
    assert reference == ["close"]
    assert not (tmp_path / "out").exists()


def test_an_impossible_gate_leaves_nothing_and_names_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: list[str]
) -> None:
    mountain = Mountain({"fp32": 2.14e-7, "bf16-fused": 1e-4})
    with pytest.raises(NoRungHeldError) as failed:
        climbed(tmp_path, monkeypatch, mountain, bound=1e-9)
    error = failed.value
    assert error.exit_code == 4
    assert error.message == (
        "no recipe holds kl_mean=1e-09: 1 of 4 were tried; "
        "the nearest is fp32 with kl_mean 2.14e-07"
    )
    assert error.hint == (
        "no artifact was written; --gate kl_mean=2.2e-07 is likely to hold with fp32"
    )
    assert error.details["nearest"] == "fp32"
    outcomes = [one["outcome"] for one in error.details["ladder"]["rungs"]]
    assert outcomes == ["skipped", "skipped", "skipped", "fell", "left out"]
    assert error.details["ladder"]["chosen"] is None
    assert not os.listdir(tmp_path)


def test_gates_that_nobody_can_measure_choose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: list[str]
) -> None:
    with pytest.raises(InputError, match="no gate could be measured on this machine"):
        climbed(tmp_path, monkeypatch, Mountain({}))
    assert not (tmp_path / "out").exists()


def test_stages_of_an_attempt_are_told_with_its_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: list[str]
) -> None:
    told: list[tuple[str, int, int]] = []
    mountain = Mountain({"int8-fused": 0.001, "int4-fused": 0.009})
    climbed(tmp_path, monkeypatch, mountain, progress=lambda *one: told.append(one))
    names = ("int8-fused", "int4-fused")
    stages = [("build", 0, 0), ("build", 1, 2), ("gates", 0, 0)]
    expected = [(f"{name}: {stage}", a, b) for name in names for stage, a, b in stages]
    assert told == [*expected, ("int4-fused: write", 0, 0)]


def test_calibrations_are_shared_in_a_folder_that_goes_with_the_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: list[str]
) -> None:
    caches: set[str] = set()
    build = Attempt.build

    def seen(self: Attempt) -> None:
        steps = self.done[Asked].options.recipe.pipeline.passes
        caches.update(getattr(one, "cache", "") for one in steps)
        build(self)

    monkeypatch.setattr(Attempt, "build", seen)
    climbed(tmp_path, monkeypatch, Mountain({"int8-fused": 0.001, "int4-fused": 0.009}))
    (folder,) = caches - {""}
    assert Path(folder).name == "calibrations"
    assert not Path(folder).exists()
