"""Trees of guesses against all paths there are, in order of their chances."""

from __future__ import annotations

import itertools
import math

import pytest

from optc.runtime.speculative.drafters.medusa_tree import likeliest, shape_of

RATES = ((0.6, 0.25, 0.1), (0.5, 0.15), (0.35, 0.2))


def all_nodes() -> list[tuple[tuple[int, ...], float]]:
    """Every path with its chance, the likeliest first."""
    paths = [
        path
        for depth in range(1, len(RATES) + 1)
        for path in itertools.product(*(range(len(row)) for row in RATES[:depth]))
    ]
    chances = {p: math.prod(RATES[at][rank] for at, rank in enumerate(p)) for p in paths}
    return sorted(chances.items(), key=lambda node: -node[1])


@pytest.mark.parametrize("most", [0, 1, 2, 5, 12, 99])
def test_the_likeliest_of_all_paths(most: int) -> None:
    found, wanted = likeliest(RATES, most), all_nodes()[:most]
    assert [path for path, _ in found] == [path for path, _ in wanted]
    assert [chance for _, chance in found] == pytest.approx([chance for _, chance in wanted])


def test_guesses_behind_one_that_is_never_right_are_left_out() -> None:
    assert likeliest([[0.5, 0.0, 0.0]], 9) == [((0,), 0.5), ((1,), 0.0)]


def test_a_later_rank_counts_as_no_likelier_than_the_one_before() -> None:
    """What was measured in training may order two ranks the other way round."""
    assert likeliest([[0.25, 0.5]], 9) == [((0,), 0.25), ((1,), 0.25)]


def test_a_shape_has_every_node_behind_its_parent() -> None:
    shape = shape_of([(0,), (1,), (0, 1), (0, 0), (1, 0), (0, 1, 0)])
    assert shape.ranks == [0, 0, 1, 0, 1, 0]
    assert shape.depths == [0, 1, 1, 2, 0, 1]
    assert shape.parents == [-1, 0, 0, 2, -1, 4]
