from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from benchmarks.encoders import __main__ as bench
from benchmarks.encoders.quality import quality
from benchmarks.encoders.rows import open_rows, table
from benchmarks.encoders.workers.encoder_worker import padded
from benchmarks.peers.tools import FailedError
from tests.importer.tensors.encoders import sentence_transformer


def test_equal_vectors_lose_nothing_and_length_does_not_count() -> None:
    vectors = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    same = quality(3 * vectors, vectors)
    assert same["recall_at_10"] == 1
    assert same["cosine_min"] == pytest.approx(1)
    other = quality(np.random.default_rng(1).standard_normal((40, 8)), vectors)
    assert other["recall_at_10"] < 0.6
    assert other["cosine_mean"] < 0.5


def test_padding_lies_behind_the_tokens() -> None:
    given = padded([[5, 6], [7, 8, 9]])
    assert given["input_ids"].tolist() == [[5, 6, 0], [7, 8, 9]]
    assert given["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]


def test_timed_texts_are_of_all_lengths() -> None:
    texts = [[1] * n for n in range(1, 200)]
    lengths = [len(text) for text in bench.timed_texts(texts)]
    assert len(lengths) == 32
    assert lengths == sorted(set(lengths))
    assert lengths[-1] > 150


def test_a_run_has_figures_of_each_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sentence_transformer(tmp_path / "st", "mean_tokens")
    file = tmp_path / "r.json"
    options = ["--workdir", str(tmp_path / "w"), "--sentences", "40", "--rounds", "1"]
    options += ["--threads", "1", "--only", "ONNX Runtime fp32", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["encoders", str(folder), *options])
    bench.main()
    assert "| ONNX Runtime fp32 | " in capsys.readouterr().out
    (row,) = json.loads(file.read_text())["rows"].values()
    assert row["cosine_mean"] > 0.99999
    assert len(row["alone"]) == len(row["together"]) == 1


def test_an_engine_that_cannot_be_made_is_listed() -> None:
    def refused() -> tuple[str, ...]:
        raise FailedError("no\n compiler")

    with ExitStack() as stack:
        results, rows = open_rows(stack, {"x": refused, "y": refused}, ["x"], lambda _: {})
    assert results == {"x": {"reason": "no compiler"}}
    assert not rows
    results["z"] = {"ms": [3.0, 1.0, 2.0], "near": 0.5}
    lines = table(("engine", "ms", "cosine"), results, {"ms": ".1f"}, {"near": ".3f"}).splitlines()
    assert lines[2:] == ["| x | no compiler |  |", "| z | 2.0 | 0.500 |"]
