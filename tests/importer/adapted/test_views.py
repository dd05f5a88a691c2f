"""Boxes of merged tensors are those of the whole ones, however they are cut."""

from __future__ import annotations

import numpy as np
import pytest

from optc.importer.adapted.views import Added, LowRank, Rows
from optc.importer.conversion.tensor import Float32
from tests.importer.conversion.arrays import ArrayTensor

RNG = np.random.default_rng(0)
W, A, B, M = (RNG.standard_normal(s).astype(np.float32) for s in ((7, 5), (2, 5), (7, 2), (7,)))


def dora(weight: Float32) -> Float32:
    return weight * (M / np.linalg.norm(weight, axis=1))[:, None]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("magnitude", [False, True])
def test_low_rank(turned: bool, magnitude: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optc.importer.adapted.views.TILE_ELEMENTS", 14)  # columns in pieces
    wanted = W + 3 * B @ A
    wanted = dora(wanted) if magnitude else wanted
    part = ArrayTensor("w", W.T if turned else W)
    own = ArrayTensor("m", M) if magnitude else None
    view = LowRank("w", part, ArrayTensor("a", A), ArrayTensor("b", B), 3.0, turned, own)
    wanted = wanted.T if turned else wanted
    assert view.shape == wanted.shape
    assert view.given is None
    assert len(view.made_of()) == 3 + magnitude
    np.testing.assert_allclose(view.read_rows(0, len(wanted)), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        view.read_box(((1, 4), (2, 5))), wanted[1:4, 2:5], rtol=1e-5, atol=1e-6
    )


def test_rows() -> None:
    own = RNG.standard_normal((2, 5)).astype(np.float32)
    view = Rows("w", ArrayTensor("w", W), ArrayTensor("t", own), np.array([6, 2]))
    wanted = W.copy()
    wanted[[6, 2]] = own
    np.testing.assert_array_equal(view.read_rows(0, 7), wanted)
    np.testing.assert_array_equal(view.read_box(((2, 6), (1, 3))), wanted[2:6, 1:3])


def test_added() -> None:
    view = Added("b", ArrayTensor("m", M), ArrayTensor("o", 2 * M), 0.5)
    np.testing.assert_array_equal(view.read_rows(1, 3), (2 * M)[1:3])
