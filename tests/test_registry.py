"""Passes, backends and recipes by name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from optc import registry
from optc.errors import InputError
from optc.ir.pipeline import registry as pass_registry


def test_what_is_installed_is_found_by_name() -> None:
    assert registry.backend_names() == ("onnxruntime", "tensorrt", "tvm", "tvm-cuda")
    for name in registry.backend_names():
        assert registry.backend(name).name == name
    assert list(registry.recipe_files()) == sorted(registry.recipe_files())
    assert registry.recipe_files()["int8-fused"].read_text().startswith("name: int8-fused")


def test_passes_are_those_of_their_groups() -> None:
    members = [p for group in pass_registry.pass_groups().values() for p in group]
    assert list(pass_registry.passes().values()) == members, "no name is there twice"
    assert all(pass_registry.passes()[p.name] is p for p in members)
    assert "quantize-weights" in [p.name for p in pass_registry.pass_groups()["quantize"]]


def test_an_unknown_backend_lists_those_there_are() -> None:
    with pytest.raises(InputError) as caught:
        registry.backend("tmv")
    assert caught.value.render() == (
        "backend: unknown backend 'tmv' (one of onnxruntime, tensorrt, tvm, tvm-cuda)"
    )


def test_recipes_of_a_package_are_found_by_name(tmp_path: Path) -> None:
    """As docs/recipes.md has it."""
    page = (Path(__file__).parents[1] / "docs/recipes.md").read_text("utf-8")
    found = re.search(r'entry-points."optc.recipes"\]\n(.+)\n', page)
    assert found is not None
    name, _, package = found[1].replace('"', "").partition(" = ")
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    recipe = registry.recipe_files()["fp32"].read_text("utf-8")
    (tmp_path / package / "support-int4.yaml").write_text(recipe.replace("fp32", "support-int4"))
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[optc.recipes]\n{name} = {package}\n")
    places = os.pathsep.join([str(tmp_path), *sys.path])
    listed = subprocess.run(
        [sys.executable, "-m", "optc", "recipes"],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "support-int4" in listed.stdout
    assert "int8-fused" in listed.stdout
