from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.executable.token_runs import token_runs

BLOCK, BLOCKS = 4, 5


def runs(sources: list[int], targets: list[int]) -> list[tuple[int, int, int]]:
    return list(token_runs(np.array(sources, np.int32), np.array(targets, np.int32), BLOCK))


def test_neighbours_are_one_run_within_a_block() -> None:
    assert runs([], []) == []
    assert runs([0, 1, 2], [8, 9, 10]) == [(0, 8, 3)]
    assert runs([2, 3, 4, 5], [8, 9, 10, 11]) == [(2, 8, 2), (4, 10, 2)], "the source's block ends"
    assert runs([0, 1, 2], [10, 11, 12]) == [(0, 10, 2), (2, 12, 1)], "the target's ends"
    assert runs([0, 2], [8, 9]) == [(0, 8, 1), (2, 9, 1)]


def test_a_run_does_not_write_what_it_reads() -> None:
    assert runs([1, 2, 3], [0, 1, 2]) == [(1, 0, 1), (2, 1, 1), (3, 2, 1)]
    assert runs([2, 3], [0, 1]) == [(2, 0, 2)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_runs_copy_what_single_tokens_would(data: st.DataObject) -> None:
    """Accepted paths move towards the front, as `optc.runtime.step.tree` makes them."""
    table = data.draw(st.permutations(range(BLOCKS)))
    path = sorted(data.draw(st.sets(st.integers(0, BLOCK * BLOCKS - 1), min_size=1)))
    slot = [table[i // BLOCK] * BLOCK + i % BLOCK for i in range(BLOCK * BLOCKS)]
    moved = [(slot[a], slot[b]) for b, a in enumerate(path) if a != b]
    want, got = list(range(BLOCK * BLOCKS)), np.arange(BLOCK * BLOCKS)
    for source, target in moved:
        want[target] = want[source]
    for source, target, count in runs([a for a, _ in moved], [b for _, b in moved]):
        assert source // BLOCK == (source + count - 1) // BLOCK
        assert target // BLOCK == (target + count - 1) // BLOCK
        assert abs(source - target) >= count or source // BLOCK != target // BLOCK
        got[target : target + count] = got[source : source + count]
    assert got.tolist() == want
