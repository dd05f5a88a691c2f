"""Random trees of rows, and the paths in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def random_parents(rows: Sequence[int], roots: Sequence[int], seed: int) -> npt.NDArray[np.int32]:
    """``tree_parent`` [T] of sequences with ``rows`` new rows each: the first ``roots`` rows of
    each are a chain, the others follow any of the last of these and of the rows after it."""
    random = np.random.default_rng(seed)
    parents: list[int] = []
    for count, chain in zip(rows, roots, strict=True):
        first = len(parents)
        for index in range(count):
            parent = index - 1
            if index >= chain:
                parent = int(random.integers(chain - 1, index))
            parents.append(-1 if index == 0 else first + parent)
    return np.array(parents, np.int32)


def path_to(parents: npt.NDArray[np.int32], row: int) -> list[int]:
    """Rows of the step from a sequence's first one down to ``row``."""
    path = [row]
    while parents[path[0]] >= 0:
        path.insert(0, int(parents[path[0]]))
    return path
