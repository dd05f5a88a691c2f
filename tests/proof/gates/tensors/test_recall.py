"""Neighbours of embeddings, by hand."""

from __future__ import annotations

import numpy as np

from optc.proof.gates.tensors.recall import Recall


def value(ours: np.ndarray, theirs: np.ndarray) -> float | None:
    found = Recall()
    for index in range(0, len(ours), 4):  # in several samples
        some = slice(index, index + 4)
        found.add({"embeddings": ours[some]}, {"embeddings": theirs[some]})
    return found.value()


def circle(count: int) -> np.ndarray:
    angles = np.arange(count) * 2 * np.pi / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_length_does_not_count_and_direction_does() -> None:
    points = circle(40)
    assert value(points * np.arange(1, 41)[:, None], points) == 1
    shuffled = points[np.random.default_rng(0).permutation(40)]
    found = value(shuffled, points)
    assert found is not None
    assert found < 0.5


def test_few_texts_have_few_neighbours() -> None:
    assert value(circle(3), circle(3)) == 1
    assert value(circle(1), circle(1)) is None


def test_half_of_the_neighbours() -> None:
    theirs = np.eye(12)
    ours = theirs.copy()
    theirs[0, 1:11] = 0.5  # its neighbours are 1 to 10
    ours[0, 1:6], ours[0, 6:11] = 0.5, 0
    found = value(ours[:, :12], theirs)
    assert found is not None
    assert 0.9 < found <= 1
