"""`examples/package`: built, installed into a folder, and used by its names from a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.stub import write_tiny_model

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools import build_meta as b; print(b.build_wheel('out'))"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the package's wheel holds."""
    work = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "examples/package", work / "source")
    (work / "source/out").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BUILD],
        cwd=work / "source",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(work / "source/out" / done.stdout.split()[-1]) as wheel:
        wheel.extractall(work / "site")
    return work / "site"


def optc(site: Path, *arguments: object) -> Any:
    """The JSON that a command prints with ``--json``."""
    done = subprocess.run(
        [sys.executable, "-m", "optc", *map(str, arguments), "--json"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{site}"},
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_its_recipe_and_its_pass_are_found_by_name(site: Path) -> None:
    (entry,) = (one for one in optc(site, "passes")["passes"] if one["group"] == "acme")
    assert (entry["name"], entry["options"]) == ("acme-swap-adds", {"most": 8})
    assert entry["description"] == "The operands of an Add change places."
    names = [one["name"] for one in optc(site, "recipes")["recipes"]]
    assert "acme-int8" in names


def test_a_plan_by_its_recipe_runs_its_pass(site: Path, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    found = optc(site, "plan", model, "--recipe", "acme-int8", "--backends", "tvm")
    (entry,) = (one for one in found["passes"] if one["name"] == "acme-swap-adds")
    assert entry["details"] == {"adds": 1}
    assert "1 are swapped" in entry["skipped"][0]
