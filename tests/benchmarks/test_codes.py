"""The trial of codes: paths against every path, tables against their definitions."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from benchmarks.proof.codes import codebook, trellis
from benchmarks.proof.codes.layers import Float32, Layer


def normal(*shape: int) -> Float32:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("bits", "state"), [(1, 2), (1, 9), (2, 3)])
def test_no_path_through_the_trellis_is_nearer(bits: int, state: int) -> None:
    table, x = normal(1 << state), normal(4, 3)
    found = trellis.viterbi(x, table, bits)
    for kept, then in pairwise(found):
        assert (then >> bits == kept & (1 << state - bits) - 1).all()
    paths = []
    for first in range(1 << state):
        for codes in product(range(1 << bits), repeat=3):
            path = [first]
            for code in codes:
                path.append(path[-1] << bits & (1 << state) - 1 | code)
            paths.append(table[path])
    least = np.square(np.array(paths)[:, :, None] - x).sum(axis=1).min(axis=0)
    np.testing.assert_allclose(np.square(table[found] - x).sum(axis=0), least, rtol=1e-6)


def test_a_learned_trellis_is_between_single_values_and_the_bound() -> None:
    table = trellis.learned_table(2, 6)
    assert 1 / 16 < trellis.distortion(table, 2) < 0.1175  # of the best four levels
    assert np.abs(table * trellis.STEPS).max() <= 127


def layer(rows: int = 128, columns: int = 32) -> Layer:
    x = normal(400, columns) @ normal(columns, columns)
    hessian = (x.T @ x / 400).astype(np.float64)
    return Layer(("a", "b"), (rows - 40, 40), normal(rows, columns), hessian)


def loss(one: Layer, weight: Float32) -> float:
    error = (weight - one.weight).astype(np.float64)
    return float(np.einsum("nk,kl,nl->", error, one.hessian, error))


@pytest.mark.parametrize("rotate", [False, True])
def test_feedback_between_columns_lowers_the_loss(rotate: bool) -> None:
    one, table = layer(), trellis.learned_table(2, 6)
    (found,) = trellis.gptq([one], table, 2, rotate=rotate)
    alone = Layer(one.names, one.rows, one.weight, np.eye(32))
    (plain,) = trellis.gptq([alone], table, 2, rotate=rotate)
    assert loss(one, found) < 0.8 * loss(one, plain)
    assert {name: part.shape for name, part in one.tensors(found)} == {"a": (88, 32), "b": (40, 32)}


def test_the_nearest_levels() -> None:
    table, x = np.sort(normal(8, 5), axis=0), 2 * normal(40, 5)
    want = np.abs(x[:, None] - table).argmin(axis=1)
    found = codebook.nearest(x, table)
    np.testing.assert_allclose(found, np.take_along_axis(table, want, 0), rtol=1e-5, atol=1e-5)


def test_learned_tables_lose_less_than_even_ones() -> None:
    one = layer()
    diagonal = one.hessian.diagonal().astype(np.float32)
    losses = [
        loss(one, codebook.gptq(one, table, 32))
        for table in (
            codebook.evenly(2),
            codebook.learned(one.weight, diagonal, 2, 32, 1 << 20),
            codebook.learned(one.weight, diagonal, 2, 32, 4),
        )
    ]
    assert losses[1] < losses[0]
    assert losses[2] < losses[0]


def test_whole_tables_give_int8_weights() -> None:
    whole = codebook.whole_levels(codebook.evenly(3), 21)
    np.testing.assert_array_equal(whole[:, 0], np.arange(0, 22, 3))
    grid = codebook.IntegerCodebook(whole, channel=np.full(6, 0.5, np.float32))
    x = np.clip(40 * normal(32, 6), -64, 63.5)
    grid.open(0, x, np.ones(32, np.float32))
    level, near = grid.round(x[0])
    np.testing.assert_array_equal(near / 0.5, level * grid.scale + grid.offset)
    for parts in (grid.scale, grid.offset, near / 0.5):
        np.testing.assert_array_equal(parts, np.rint(parts))
    assert (grid.scale * whole.max() <= 255).all()
    assert (np.abs(near / 0.5) <= 128).all()
