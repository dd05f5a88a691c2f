"""Logits of a model are those that ONNX Runtime gives of the whole graph."""

from __future__ import annotations

import numpy as np

from benchmarks.pruning.measure import entries_without, logits
from tests.support.dense_models import dense_model
from tests.support.ragged import run


def test_logits_are_those_of_the_whole_graph() -> None:
    tokens = np.random.default_rng(0).integers(0, 90, (3, 16), np.int32)
    positions = np.tile(np.arange(16, dtype=np.int64), (3, 1))
    feeds = {"input_ids": tokens.astype(np.int64), "position_ids": positions}
    (expected,) = run(dense_model(2), feeds)
    found = np.stack(list(logits(dense_model(2), tokens)))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_paths_are_not_stated() -> None:
    text = {"text": "/a/b", "folder": "/c"}
    assert entries_without([{"p": {"sparsity": 0.5, **text}}], text) == [{"p": {"sparsity": 0.5}}]
