from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.vision import __main__ as bench
from tests.importer.tensors.encoders import vit


def test_the_length_of_an_output_does_not_count() -> None:
    outputs = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    same = bench.quality(3 * outputs, outputs)
    assert same["class_agreement"] == 1
    assert same["cosine_mean"] == pytest.approx(1)
    assert bench.quality(-outputs, outputs)["class_agreement"] < 0.5


def test_a_run_has_figures_of_each_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.json"
    options = ["--workdir", str(tmp_path / "w"), "--images", "9", "--rounds", "1"]
    options += ["--threads", "1", "--only", "ONNX Runtime fp32", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["vision", str(vit(tmp_path / "vit")), *options])
    bench.main()
    assert "| ONNX Runtime fp32 | " in capsys.readouterr().out
    (row,) = json.loads(file.read_text())["rows"].values()
    assert row["cosine_mean"] > 0.99999
    assert len(row["ms_1"]) == len(row["ms_8"]) == 1
