"""Models of named tensors by command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.conftest import Optc
from tests.importer.tensors.test_onnx_source import WEIGHT, proto
from tests.support.ir_text import f32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(proto(["batch", 4]), tmp_path / "product.onnx")
    return tmp_path / "product.onnx"


def test_the_commands(file: Path, tmp_path: Path, optc: Optc) -> None:
    made = optc("compile", file, "-o", tmp_path / "a", "--dim", "batch=2..4", "--json")
    assert made.code == 0
    assert {one["name"]: one["passed"] for one in made.json["gates"]}["output_error"] is True
    np.savez(tmp_path / "x.npz", x=f32(3, 4))
    call = ("run", tmp_path / "a", "--inputs", tmp_path / "x.npz")
    ran = optc(*call, "--output", tmp_path / "y.npz", "--json")
    assert ran.json["outputs"]["y"]["shape"] == [3, 3]
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_allclose(found["y"], f32(3, 4) @ WEIGHT, rtol=1e-5, atol=1e-6)
    assert "y: float32 [3, 3]" in optc(*call).out
    assert optc("verify", tmp_path / "a").code == 0
    assert optc("inspect", tmp_path / "a", "--json").json["manifest"]["task"]["name"] == "tensors"
    for words in (("run", "--prompt", "x"), ("bench",), ("eval", "--text", file)):
        told = optc(words[0], tmp_path / "a", *words[1:])
        assert told.code == 2, told.err
        assert "where steps are needed" in told.err


@pytest.mark.parametrize("text", ["batch", "batch=x", "batch=4..2", "1=2..3", "=1..2"])
def test_dimensions_that_are_none(file: Path, text: str, optc: Optc) -> None:
    told = optc("compile", file, "--dim", text)
    assert told.code == 2
    assert "--dim" in told.err or "dimension" in told.err
