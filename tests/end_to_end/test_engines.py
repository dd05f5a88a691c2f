"""Engines of two backends in one artifact, built and run for real."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import optc
from optc.artifact.artifact import Artifact
from tests.support.shared import made_once
from tests.support.stub import write_tiny_model

pytestmark = pytest.mark.native
ENGINES = ("tvm:x86-64-v3", "tvm:native", "onnxruntime")
GREEDY = optc.SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = ["def fib(n):", "a"]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    def compile(folder: Path) -> Path:
        model, output = write_tiny_model(folder / "tiny"), folder / "artifact"
        return optc.compile(model, "int8-fused", output, backend=ENGINES, no_gates=True).path

    return Artifact.open(made_once(tmp_path_factory, "tiny-of-two-backends", compile))


def tokens(path: Path, engine: str | None) -> tuple[str, list[tuple[int, ...]]]:
    """The loaded engine's name and what it generates."""
    with optc.load(path, engine=engine, kv_memory="4MiB") as loaded:
        assert loaded.info is not None
        return loaded.info.name, [r.token_ids for r in loaded.generate(PROMPTS, GREEDY)]


def test_every_engine_runs_and_the_best_is_loaded(artifact: Artifact) -> None:
    names = [entry.name for entry in artifact.manifest.engines]
    assert names == ["tvm-x86-64-v3", "tvm-native", "onnxruntime-native"]
    found = {name: tokens(artifact.path, name)[1] for name in names}
    assert all(len(ids) == 12 for results in found.values() for ids in results)
    assert found["tvm-x86-64-v3"] == found["tvm-native"], "integers are equal on every CPU"
    chosen, results = tokens(artifact.path, None)
    # A CPU with AVX2 only offers kernels no more than x86-64-v3 has: the first of equals is loaded.
    fixed, native, _ = (len(entry.data.get("features", ())) for entry in artifact.manifest.engines)
    best = "tvm-native" if native > fixed else "tvm-x86-64-v3"
    assert chosen == best, "pages go before slots, then more of this CPU"
    assert results == found[chosen]


def test_the_engine_that_the_report_says_was_fastest_is_loaded(
    artifact: Artifact, tmp_path: Path
) -> None:
    speeds = {"tvm-x86-64-v3": 3.0, "tvm-native": 2.0, "onnxruntime-native": 9.0}
    copy = tmp_path / "copy"
    shutil.copytree(artifact.path, copy, copy_function=os.link)
    rest = {"bound": None, "passed": None, "measured_on": "engine"}
    gates = [
        {"engine": engine, "name": name, "value": value, **rest}
        for engine, value in speeds.items()
        for name in ("prefill_speedup", "decode_speedup")
    ]
    (copy / "report.json").unlink()  # a link to the other's
    (copy / "report.json").write_text(json.dumps({**artifact.report(), "gates": gates}))
    chosen, results = tokens(copy, None)
    assert chosen == "onnxruntime-native"
    assert results == tokens(artifact.path, chosen)[1]


def test_weights_are_stored_once_for_all_targets_of_a_backend(artifact: Artifact) -> None:
    reports = {entry["name"]: entry for entry in artifact.report()["engines"]}
    assert reports["tvm-native"]["weights_of"] == "tvm-x86-64-v3"
    assert reports["tvm-native"]["weight_bytes"] == 0
    held = [path for path in artifact.path.rglob("weights.bin") if "tvm" in path.parent.name]
    assert [path.parent.name for path in held] == ["tvm-x86-64-v3"]
    storage = artifact.report()["storage"]
    weights = sorted(entry["weight_bytes"] for entry in reports.values())
    assert storage["duplicated_bytes"] == sum(weights[:-1]) > 0, "what the other backend repacks"
    assert Artifact.open(artifact.path).digest == artifact.digest
