"""Streaming figures equal the textbook formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.proof.gates.divergence import (
    _DEPTH,
    TOP,
    BestTokens,
    RowDivergence,
    RowScores,
    _largest,
    negative_log_likelihood,
    summarize,
)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    z = logits.astype(np.float64)
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def streamed(z: np.ndarray, y: np.ndarray, targets: np.ndarray, tile: int) -> RowScores:
    sums = RowDivergence(targets)
    for start in range(0, z.shape[1], tile):
        sums.add(z[:, start : start + tile], y[:, start : start + tile], start)
    return sums.result()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-3, 1.0, 30.0, 3000.0]),
    noise=st.sampled_from([0.0, 1e-3, 1.0]),
    tile=st.integers(1, 60),
)
def test_equals_the_formulas(seed: int, scale: float, noise: float, tile: int) -> None:
    rng = np.random.default_rng(seed)
    z = (scale * rng.standard_normal((7, 53))).astype(np.float32)
    y = (z + noise * rng.standard_normal(z.shape)).astype(np.float32)
    targets = rng.integers(0, 53, 7).astype(np.int32)
    found = streamed(z, y, targets, tile)
    p, q = log_softmax(z), log_softmax(y)
    rows = np.arange(7)
    np.testing.assert_allclose(found.kl, (np.exp(p) * (p - q)).sum(axis=1), atol=1e-11, rtol=1e-9)
    np.testing.assert_allclose(found.nll_reference, -p[rows, targets], atol=1e-11)
    np.testing.assert_allclose(found.nll_engine, -q[rows, targets], atol=1e-11)
    best = np.stack([z.argmax(axis=1), y.argmax(axis=1)], axis=1)
    np.testing.assert_array_equal(found.agree, best[:, 0] == best[:, 1])
    np.testing.assert_array_equal(found.best.tokens, best)
    across = rows[:, None]
    np.testing.assert_allclose(found.best.log_p_reference, p[across, best], atol=1e-11)
    np.testing.assert_allclose(found.best.log_p_engine, q[across, best], atol=1e-11)
    likelier = (y > y[rows, best[:, 0]][:, None]).sum(axis=1)
    np.testing.assert_array_equal(found.among_top5, likelier < 5)
    np.testing.assert_allclose(
        negative_log_likelihood(y, targets, tile), -q[rows, targets], atol=1e-11
    )


@pytest.mark.parametrize("tile", [1, 3, 8])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 3, 7])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("sides", [(True, False), (False, True), (True, True)])
def test_nothing_agrees_where_logits_are_no_numbers(
    tile: int, wrong: float, at: int, whole: bool, sides: tuple[bool, bool]
) -> None:
    z = np.arange(16, dtype=np.float32).reshape(2, 8)[:, ::-1].copy()
    y = z.copy()
    for side, logits in zip(sides, (z, y), strict=True):
        if side:
            logits[1, slice(None) if whole else at] = wrong
    found = streamed(z, y, np.array([2, 2], np.int32), tile)
    assert found.agree.tolist() == found.among_top5.tolist() == [True, False]
    assert np.isfinite(found.kl).tolist() == [True, False]


def test_a_perplexity_that_no_float_holds_is_infinite() -> None:
    z = np.array([[3e4, 0.0]], np.float32)
    figures = summarize([streamed(z, z, np.array([1], np.int32), 2)])
    assert figures.perplexity == figures.reference_perplexity == np.inf


def test_ties_go_to_the_lowest_id() -> None:
    z = np.array([[1.0, 3.0, 3.0, 0.0]], np.float32)
    y = np.array([[1.0, 3.0, 0.0, 3.0]], np.float32)
    assert streamed(z, y, np.array([0], np.int32), 1).agree.tolist() == [True]
    assert streamed(z, y[:, ::-1], np.array([0], np.int32), 2).agree.tolist() == [False]


@pytest.mark.parametrize(("rank", "among"), [(0, True), (4, True), (5, False)])
def test_the_likeliest_token_is_among_five(rank: int, among: bool) -> None:
    """The reference's first is token 6; ``rank`` others are likelier to the engine."""
    z = np.arange(7, dtype=np.float32)[None]
    y = np.where(np.arange(7) < rank, 2.0, 0.0).astype(np.float32)[None]
    y[0, 6] = 1.0
    for tile in (1, 3, 7):
        assert streamed(z, y, np.array([0], np.int32), tile).among_top5.tolist() == [among]


def test_of_few_tokens_every_one_is_among_five() -> None:
    z = np.array([[1.0, 0.0, 0.0]], np.float32)
    assert streamed(z, z[:, ::-1], np.array([0], np.int32), 2).among_top5.tolist() == [True]


def test_tiles_may_differ_in_width() -> None:
    """As the last one does; the likeliest tokens are 0 and 2, each the first of its tile."""
    z = np.array([[3.0, 1.0, 1.0]], np.float32)
    y = np.array([[1.0, 1.0, 3.0]], np.float32)
    sums = RowDivergence(np.array([2], np.int32))
    for start, stop in ((0, 1), (1, 3)):
        sums.add(z[:, start:stop], y[:, start:stop], start)
    found = sums.result()
    assert found.agree.tolist() == [False]
    assert found.nll_reference == pytest.approx(-log_softmax(z)[0, 2])


def test_rounding_makes_no_divergence_negative() -> None:
    """Logits that differ by a constant are one distribution: a sum could be -1e-16."""
    z = np.random.default_rng(3).integers(-4096, 4096, (500, 40)).astype(np.float32) / 512
    kl = streamed(z, z + 1, np.zeros(500, np.int32), 16).kl
    assert 0 <= kl.min() <= kl.max() < 1e-12


def test_entries_ruled_out_by_both_do_not_count() -> None:
    z = np.array([[1.0, 2.0, -1e30]], np.float32)
    found = streamed(z, z, np.array([1], np.int32), 2)
    assert found.kl.tolist() == [0.0]


def test_nan_is_not_hidden() -> None:
    z = np.zeros((1, 4), np.float32)
    y = np.array([[0.0, np.nan, 0.0, 0.0]], np.float32)
    assert np.isnan(streamed(z, y, np.array([0], np.int32), 2).kl).all()


def test_summary() -> None:
    kl = np.arange(200) / 100
    best = BestTokens(*(np.zeros((200, 2), kind) for kind in (np.int64, float, float)))
    nll = [np.full(200, np.log(value)) for value in (8.0, 10.0)]
    part = RowScores(kl, kl < 1.5, kl < 1.8, *nll, best)
    found = summarize([part, part])
    assert found.tokens == 400
    assert found.kl_mean == pytest.approx(0.995)
    assert found.kl_p99 == pytest.approx(np.percentile(np.concatenate([kl, kl]), 99))
    assert found.kl_max == pytest.approx(1.99)
    assert found.top1_agreement == pytest.approx(0.75)
    assert found.top5_agreement == pytest.approx(0.9)
    assert found.reference_perplexity == pytest.approx(8)
    assert found.perplexity_ratio == pytest.approx(1.25)


@pytest.mark.parametrize("width", [1, TOP * _DEPTH, (TOP + 1) * _DEPTH, 40 * _DEPTH + 7])
def test_the_largest_of_a_tile_of_any_width(width: int) -> None:
    """Of wide ones only some columns are looked at, and the rest of a width that does not fit."""
    rng = np.random.default_rng(width)
    known, tile = (rng.standard_normal((9, n)).astype(np.float32) for n in (TOP, width))
    tile[0] = np.sort(tile[0])
    tile[1] = tile[0, ::-1]
    found = np.sort(_largest(known, tile), axis=1)
    np.testing.assert_array_equal(found, np.sort(np.hstack([known, tile]), axis=1)[:, -TOP:])
