"""Work on rows, some at a time, on all threads: the same bits whatever their number."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from optc.system.hardware.blas_threads import one_blas_thread
from optc.system.hardware.target import usable_threads

#: Rows of a tile: products of matrices have one shape, but for the last.
TILE = 256


def in_tiles(work: Callable[[slice], None], rows: int) -> None:
    """Call ``work`` for all rows, a tile at a time."""
    tiles = [slice(at, min(at + TILE, rows)) for at in range(0, rows, TILE)]
    with one_blas_thread(), ThreadPoolExecutor(usable_threads()) as pool:
        for _ in pool.map(work, tiles):
            pass
