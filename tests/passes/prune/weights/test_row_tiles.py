"""Tiles cover all rows once, whatever the number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.prune.weights import row_tiles as module
from optc.passes.prune.weights.row_tiles import TILE, in_tiles


@pytest.mark.parametrize("rows", [0, 1, TILE, TILE + 1, 3 * TILE - 1])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_row_is_taken_once(rows: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_threads", lambda: threads)
    seen = np.zeros(rows, np.int64)

    def work(tile: slice) -> None:
        assert tile.start % TILE == 0
        seen[tile] += 1

    in_tiles(work, rows)
    assert (seen == 1).all()


def test_errors_of_a_tile_are_raised() -> None:
    def work(tile: slice) -> None:
        raise KeyError(tile.start)

    with pytest.raises(KeyError):
        in_tiles(work, 3)
