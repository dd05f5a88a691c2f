"""Figures of rows: an engine's logits against what the reference computes of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields

import numpy as np

from optc.proof.gates.divergence import BestTokens, RowDivergence, RowScores
from optc.proof.reference.blockwise import BlockwiseReference
from optc.runtime.executable.executable import Float32, Int32

#: Told the first entry of a tile of the vocabulary, and its logits [R, n].
Watch = Callable[[int, Float32], None]


class Scoring:
    """Scores rows, on as many threads as the reference has; see `scoring`."""

    def __init__(self, reference: BlockwiseReference, pool: ThreadPoolExecutor) -> None:
        self._reference = reference
        self._pool = pool

    def score(
        self, states: Float32, logits: Float32, targets: Int32, watch: Watch | None = None
    ) -> RowScores:
        """Figures of R rows.

        Args:
            states: [R, D] inputs of the reference's head.
            logits: [R, V] of the engine.
            targets: [R] the tokens that follow.
            watch: Sees the reference's logits of each tile of the vocabulary.
        """
        reference = self._reference
        edges = np.linspace(0, len(targets), min(reference.threads, len(targets)) + 1).astype(int)
        parts = [slice(*edges[at : at + 2]) for at in range(len(edges) - 1)]
        sums = [RowDivergence(targets[rows]) for rows in parts]
        for tile in reference.tiles():
            expected = reference.logits(states, tile)
            found = logits[:, tile.start : tile.stop]
            started = [
                self._pool.submit(one.add, expected[rows], found[rows], tile.start)
                for one, rows in zip(sums, parts, strict=True)
            ]
            if watch is not None:
                watch(tile.start, expected)
            for one in started:
                one.result()
        return joined([one.result() for one in sums])


@contextmanager
def scoring(reference: BlockwiseReference) -> Iterator[Scoring]:
    """The scorer of rows against ``reference``, with its threads."""
    with ThreadPoolExecutor(reference.threads, "optc-scores") as pool:
        yield Scoring(reference, pool)


def joined(parts: list[RowScores]) -> RowScores:
    """The rows of all parts, of which there is at least one, as one."""
    best = [
        np.concatenate([getattr(part.best, field.name) for part in parts])
        for field in fields(BestTokens)
    ]
    names = [field.name for field in fields(RowScores) if field.name != "best"]
    rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return RowScores(**rows, best=BestTokens(*best))
