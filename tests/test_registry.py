"""Passes, backends and recipes by name."""

from __future__ import annotations

import pytest

from optc import registry
from optc.errors import InputError
from optc.pipeline import registry as pass_registry


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
