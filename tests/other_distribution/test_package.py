"""A package of passes, an operator, a recipe and a backend behaves as optc's own do.

`source` is built as a wheel, unpacked into a folder, and used by names from a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from tests.support.stub import write_tiny_model

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = "from setuptools import build_meta as b; print(b.build_wheel('out'))"
#: What the package's pass leaves of 64 neurons.
LEFT = 48

Results = Mapping[str, list[dict[str, Any]]]


def run(*arguments: object, folder: Path, site: Path | None = None) -> str:
    path = os.pathsep.join(map(str, (ROOT, *([] if site is None else [site]))))
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="module")
def results(work: Path) -> Results:
    """The JSON of each command of `use`, by the command."""
    shutil.copytree(HERE / "source", work / "source")
    (work / "source/out").mkdir()
    wheel = run("-c", BUILD, folder=work / "source").split()[-1]
    with zipfile.ZipFile(work / "source/out" / wheel) as packed:
        packed.extractall(work / "site")
    model = write_tiny_model(work / "tiny")
    lines = run(HERE / "use.py", model, work, folder=work, site=work / "site").splitlines()
    found: dict[str, list[dict[str, Any]]] = {}
    for one in map(json.loads, lines):
        found.setdefault(one["schema"].split(".")[1], []).append(one)
    return found


def passes_of(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in result["passes"]}


def order(result: Mapping[str, Any], *names: str) -> list[str]:
    return [one["name"] for one in result["passes"] if one["name"] in names]


def test_what_it_brings_is_listed(results: Results) -> None:
    groups = {one["name"]: one["group"] for one in results["passes"][0]["passes"]}
    assert groups["elsewhere-observe"] == groups["elsewhere-drop-neurons"] == "elsewhere"
    assert "elsewhere-int4" in [one["name"] for one in results["recipes"][0]["recipes"]]


def test_its_pass_that_reads_a_text_is_given_one(results: Results) -> None:
    for compiled in results["compile"]:
        assert passes_of(compiled)["elsewhere-observe"]["facts"]["tokens"] > 0


def test_a_budget_comes_behind_its_passes_in_plans_and_compiles(results: Results) -> None:
    plain, budget = results["compile"]
    names = ("elsewhere-drop-neurons", "elsewhere-observe", "allocate-bits", "elsewhere-scale")
    assert order(results["plan"][0], *names) == order(budget, *names) == list(names)
    assert order(plain, *names) == [names[0], names[1], names[3]]
    assert passes_of(budget)["allocate-bits"]["facts"]["bits_per_weight"] <= 5


def test_weights_are_trained_behind_its_pruning(results: Results) -> None:
    assert results["distill"][0]["kl"] < results["distill"][0]["start_kl"]
    compiled = results["compile"][0]
    names = ("elsewhere-drop-neurons", "trained-weights", "elsewhere-observe")
    assert order(compiled, *names) == list(names)
    assert passes_of(compiled)["trained-weights"]["count"] > 0


def test_its_backend_and_its_operator_make_engines_that_agree(results: Results) -> None:
    names = [one["name"] for one in results["compile"][0]["engines"]]
    assert names == ["elsewhere-x86-64-v3", "tvm-x86-64-v3"]
    assert passes_of(results["compile"][0])["elsewhere-scale"]["details"] == {"logits": 1}
    tokens = [one["token_ids"] for one in results["run"]]
    assert [len(one) for one in tokens] == [8, 8]
    assert tokens[0] == tokens[1]


def test_the_export_has_the_size_that_its_pruning_left(results: Results, work: Path) -> None:
    assert results["export"]
    config = json.loads((work / "exported/config.json").read_text())
    assert config["intermediate_size"] == LEFT
    with safe_open(work / "exported/model.safetensors", "np") as weights:
        assert weights.get_slice("model.layers.0.mlp.up_proj.weight").get_shape() == [LEFT, 32]
