"""Manifest and report from what the stages of a compile left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from optc.artifact.manifest import FileEntry, GateEntry, PassEntry, Source
from optc.artifact.tasks.text_generation import TEXT_GENERATION
from optc.compiling.judging.judge import Judgement
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.machine import package_versions
from optc.compiling.stages.assemble import assemble_manifest, assemble_report
from optc.importer.imported import ImportedModel
from optc.ir.pipeline.phase import Effect
from optc.proof.gates.measure import GateResult
from tests.artifact.toy import toy_engine
from tests.support.models import Dense, dense_model

FILES = (FileEntry("engines/target/weights.bin", 4, "00" * 32),)
GATES = (
    GateResult("kl_mean", 0.1, 0.5, True, "engine", "", "a"),
    GateResult("kl_mean", 0.2, 0.5, True, "lowered-onnx", "", "b"),
)


@pytest.fixture
def stages() -> Any:
    """Everything that is put together."""
    imported = ImportedModel(
        model=dense_model(Dense()),
        config={"hidden_size": 32},
        family="llama",
        name="m",
        folder=Path("models/m"),
        source_digest="ab" * 32,
        tokenizer_files=[],
        warnings=["imported"],
        max_context=64,
    )
    record = SimpleNamespace(
        name="kv-cache",
        spec="kv-cache{dtype=int8}",
        report=SimpleNamespace(count=2, details={"full": 2}),
        effects=Effect.MOVES_WEIGHTS,
        removes="heads",
        leaves_class="tokens were removed",
        to_json=lambda: {"name": "kv-cache", "seconds": 0.5},
    )
    return SimpleNamespace(
        options=SimpleNamespace(recipe=load_recipe("fp32"), warnings=("asked",)),
        imported=imported,
        lowered=SimpleNamespace(
            model=dense_model(Dense()),
            runs=(record,),
            spec="canonicalize,kv-cache{dtype=int8}",
            warnings=("idle pass",),
        ),
        engines=[
            SimpleNamespace(entry=toy_engine(n), build=SimpleNamespace(warnings=(f"built {n}",)))
            for n in "ab"
        ],
        drafts=[SimpleNamespace(role="self", warnings=("drafts",), report={"layers": 3})],
        judgement=Judgement(GATES, True, (), {"a": {"tokens": 64}}, ("judged",)),
    )


def test_the_manifest(stages: Any) -> None:
    found = assemble_manifest(
        stages.options,
        stages.imported,
        stages.lowered,
        stages.engines,
        None,
        cast(Judgement, stages.judgement),
        FILES,
    )
    assert (found.task, found.name) == (TEXT_GENERATION, "m")
    assert found.source == Source("m", "ab" * 32, "llama", {"hidden_size": 32})
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


def test_nothing_in_the_manifest_was_measured(stages: Any) -> None:
    """Two compiles of the same input write the same bytes."""

    def digest(value: float, facts: dict[str, Any]) -> str:
        gates = [GateResult("kl_mean", value, 0.5, True, "engine", f"{value}", "a")]
        judgement = Judgement(tuple(gates), True, (), facts, (f"{value}",))
        stage = (stages.options, stages.imported, stages.lowered, stages.engines)
        return assemble_manifest(*stage, None, judgement, FILES).digest

    assert digest(0.1, {}) == digest(0.2, {"tokens": 1})


def test_the_report(stages: Any) -> None:
    seconds = {"import": 1.0, "build": 2.0, "total": 3.5}
    found = assemble_report(
        stages.options,
        stages.imported,
        stages.lowered,
        stages.engines,
        stages.drafts,
        stages.judgement,
        seconds,
        4096,
    )
    assert found["schema"] == "optc.report.v1"
    assert found["passes"] == [{"name": "kv-cache", "seconds": 0.5}]
    assert [(g["engine"], g["value"]) for g in found["gates"]] == [("a", 0.1), ("b", 0.2)]
    assert found["evaluation"] == {"a": {"tokens": 64}}
    assert found["tensors"][0]["kind"] == "embedding"
    assert (found["seconds"], found["stages"]) == (3.5, {"import": 1.0, "build": 2.0})
    assert found["peak_anon_bytes"] == 4096
    assert found["machine"]["threads"] >= 1
    asked = ["asked", "imported", "idle pass"]
    assert found["warnings"] == [*asked, "built a", "built b", "drafts", "judged"]
    assert found["self"] == {"layers": 3}
