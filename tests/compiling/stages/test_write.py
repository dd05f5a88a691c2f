"""Manifest and report from what the stages of a compile left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from optc.artifact.manifest import FileEntry, GateEntry, PassEntry, Source
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.judging.judge import Judgement
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.machine import package_versions
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.stages.row import BuiltEngines, Done
from optc.compiling.stages.write import Identity, PassRuns, assemble_manifest, assemble_report
from optc.ir.pipeline.phase import Effect
from optc.proof.gates.measure import GateResult
from optc.system.progress import no_progress
from tests.artifact.toy import toy_engine

FILES = tuple(
    FileEntry(f"engines/{n}/{file}", 4, "00" * 32) for n in "ab" for file in toy_engine(n).files
)
GATES = (
    GateResult("kl_mean", 0.1, 0.5, True, "engine", "", "a"),
    GateResult("kl_mean", 0.2, 0.5, True, "lowered-onnx", "", "b"),
)
SOURCE = Source("m", "ab" * 32, "llama", {"hidden_size": 32})


@pytest.fixture
def done() -> Done:
    """Everything that is put together."""
    record = SimpleNamespace(
        name="kv-cache",
        spec="kv-cache{dtype=int8}",
        report=SimpleNamespace(count=2, details={"full": 2}),
        effects=Effect.MOVES_WEIGHTS,
        removes="heads",
        leaves_class="tokens were removed",
        to_json=lambda: {"name": "kv-cache", "seconds": 0.5},
    )
    engines = [
        SimpleNamespace(
            entry=toy_engine(n),
            build=SimpleNamespace(weight_bytes=4, report={}),
            weights=SimpleNamespace(folder=f"../{n}"),
            seconds=1.0,
        )
        for n in "ab"
    ]
    found = Done(no_progress, 0.0, {"import": 1.0, "build": 2.0}, ["asked", "judged"])
    found.report = {"self": {"layers": 3}}
    return found.leave(
        Identity(TEXT_GENERATION, SOURCE),
        load_recipe("fp32"),
        PassRuns(cast(Any, [record]), "canonicalize,kv-cache{dtype=int8}"),
        BuiltEngines(cast(Any, engines)),
        Judgement(GATES, True, (), {"a": {"tokens": 64}}, ()),
        PeakMemory(),
    )


def test_the_manifest(done: Done) -> None:
    found = assemble_manifest(done, FILES)
    assert (found.task, found.name) == (TEXT_GENERATION, "m")
    assert found.source == SOURCE
    assert found.recipe["name"] == "fp32"
    assert found.pipeline == "canonicalize,kv-cache{dtype=int8}"
    told = ("heads", "tokens were removed", True)
    assert found.passes == (PassEntry("kv-cache", "kv-cache{dtype=int8}", 2, {"full": 2}, *told),)
    assert [engine.name for engine in found.engines] == ["a", "b"]
    assert (found.tokenizer, found.files, found.gated) == (None, FILES, True)
    assert found.gates == (
        GateEntry("kl_mean", 0.5, True, "a"),
        GateEntry("kl_mean", 0.5, True, "b", lowered=True),
    )
    assert found.packages == package_versions()


def test_nothing_in_the_manifest_was_measured(done: Done) -> None:
    """Two compiles of the same input write the same bytes."""

    def digest(value: float, facts: dict[str, Any]) -> str:
        gates = [GateResult("kl_mean", value, 0.5, True, "engine", f"{value}", "a")]
        done.leave(Judgement(tuple(gates), True, (), facts, (f"{value}",)))
        return assemble_manifest(done, FILES).digest

    assert digest(0.1, {}) == digest(0.2, {"tokens": 1})


def test_the_report(done: Done) -> None:
    found = assemble_report(done, FILES, 0)
    assert found["schema"] == "optc.report.v1"
    assert found["passes"] == [{"name": "kv-cache", "seconds": 0.5}]
    assert [(g["engine"], g["value"]) for g in found["gates"]] == [("a", 0.1), ("b", 0.2)]
    assert found["stages"] == {"import": 1.0, "build": 2.0}
    assert found["seconds"] > 3
    assert found["machine"]["threads"] >= 1
    assert found["warnings"] == ["asked", "judged"]
    assert found["self"] == {"layers": 3}
