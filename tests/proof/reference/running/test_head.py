"""Tiles of the head are read once where the model is kept."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.reference.partition import partition
from optc.proof.reference.running import head as module
from optc.proof.reference.running.head import Head
from tests.support.dense_models import D, V, dense_model


@pytest.mark.parametrize("keeps", [False, True])
def test_tiles_cover_the_vocabulary(keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VOCAB_TILE", 40)
    model = dense_model(1)
    head = Head(model, partition(model), 1, keeps=keeps)
    tiles = list(head.tiles())
    assert [(one.start, one.stop) for one in tiles] == [(0, 40), (40, 80), (80, V)]
    assert len(tiles) == head.tile_count
    again = list(head.tiles())
    assert [mine is one for mine, one in zip(again, tiles, strict=True)] == [keeps] * 3
    head.let_go()
    assert next(iter(head.tiles())) is not tiles[0]
    hidden = np.random.default_rng(0).standard_normal((3, D)).astype(np.float32)
    found = np.concatenate([head.logits(hidden, one) for one in tiles], axis=1)
    weight = model.graph.initializers["head"].const_value
    assert weight is not None
    np.testing.assert_allclose(found, hidden @ np.asarray(weight.numpy()), rtol=1e-4, atol=1e-5)
