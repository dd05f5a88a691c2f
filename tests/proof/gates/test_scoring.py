"""Rows are scored alike by any number of threads."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from optc.proof.gates.divergence import RowDivergence, RowScores
from optc.proof.gates.scoring import joined, scoring
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.running import head
from tests.support.dense_models import D, V, dense_model


def assert_equal(found: RowScores, expected: RowScores) -> None:
    for mine, theirs in ((found, expected), (found.best, expected.best)):
        for field in fields(mine):
            if field.name != "best":
                np.testing.assert_array_equal(
                    getattr(mine, field.name), getattr(theirs, field.name)
                )


@pytest.mark.parametrize(("threads", "rows"), [(1, 7), (3, 7), (4, 2)])
def test_scores_are_those_of_all_rows_at_once(
    threads: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "VOCAB_TILE", 40)
    rng = np.random.default_rng(0)
    states = rng.standard_normal((rows, D)).astype(np.float32)
    logits = rng.standard_normal((rows, V)).astype(np.float32)
    targets = rng.integers(0, V, rows).astype(np.int32)
    reference = BlockwiseReference(dense_model(1), threads)
    seen: dict[int, np.ndarray] = {}
    with scoring(reference) as scorer:
        found = scorer.score(states, logits, targets, seen.__setitem__)
    sums = RowDivergence(targets)
    for tile in reference.tiles():
        sums.add(reference.logits(states, tile), logits[:, tile.start : tile.stop], tile.start)
    assert_equal(found, sums.result())
    assert_equal(joined([found]), found)
    for tile in reference.tiles():
        np.testing.assert_array_equal(seen.pop(tile.start), reference.logits(states, tile))
    assert not seen
