"""Windows, chunks and slopes from the numbers of a mask."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from optc.passes.canonicalize.spelled.pattern import Pattern, pattern_of

INDEX = np.arange(12)
BEHIND = INDEX[:, None] - INDEX
CAUSAL = BEHIND >= 0
SLOPES = (0.5, 0.25, 0.0078125)


def bias(seen: np.ndarray, *, hidden: float = -np.inf) -> np.ndarray:
    """[3, S, S]: 0 where a row sees a column."""
    return np.broadcast_to(np.where(seen, 0.0, hidden), (3, *seen.shape)).copy()


def leaning(seen: np.ndarray) -> np.ndarray:
    return bias(seen) - np.where(seen, np.array(SLOPES)[:, None, None] * BEHIND, 0)


@pytest.mark.parametrize("hidden", [-np.inf, -3.4e38, -1e4])
def test_what_is_visible(hidden: float) -> None:
    chunks = INDEX[:, None] // 5 == INDEX // 5
    assert pattern_of(bias(CAUSAL, hidden=hidden)) == Pattern()
    assert pattern_of(bias(CAUSAL & (BEHIND < 4), hidden=hidden)) == Pattern(window=4)
    assert pattern_of(bias(CAUSAL & chunks, hidden=hidden)) == Pattern(chunk=5)


def test_slopes_whatever_rows_have_in_common() -> None:
    assert pattern_of(leaning(CAUSAL)) == Pattern(slopes=SLOPES)
    by_column = bias(CAUSAL) + np.array(SLOPES)[:, None, None] * (INDEX - 11.0)
    assert pattern_of(by_column) == Pattern(slopes=SLOPES)
    assert pattern_of(leaning(CAUSAL & (BEHIND < 4))) == Pattern(window=4, slopes=SLOPES)


def test_slopes_that_were_multiplied_in_bfloat16() -> None:
    slopes = np.array([0.70710678, 0.84089642, 0.3], ml_dtypes.bfloat16)
    products = (slopes[:, None] * INDEX.astype(ml_dtypes.bfloat16)).astype(np.float64)
    found = pattern_of(np.where(CAUSAL, products[:, None, :], -np.inf)[:, :9, :9])
    assert isinstance(found, Pattern)
    assert found.slopes == tuple(slopes.astype(np.float64))


def test_biases_by_distance() -> None:
    biases = np.array([[0.0, 3, -1, 2, 2], [0, 1, 1, 1, 1], [0, -4, 5, 0.5, 0.5]])
    level = bias(CAUSAL) + np.where(CAUSAL, biases[:, BEHIND.clip(0, 4)], 0)
    found = pattern_of(level + np.arange(12.0)[:, None])
    assert isinstance(found, Pattern)
    assert (found.window, found.slopes) == (0, None)
    np.testing.assert_array_equal(found.biases, biases[:, np.minimum(INDEX, 4)])


@pytest.mark.parametrize(
    ("level", "reason"),
    [
        (bias(np.ones((12, 12), bool)), "a row sees tokens behind it"),
        (bias(CAUSAL & ((BEHIND < 3) | (INDEX == 0))), "neither a window nor a chunk"),
        (bias(CAUSAL & (BEHIND > 0)), "a row does not see itself"),
        (bias(CAUSAL) - np.where(CAUSAL, BEHIND * INDEX, 0), "not depend on distance alone"),
        (
            np.stack([bias(CAUSAL)[0], bias(CAUSAL & (BEHIND < 4))[0]]),
            "heads see different tokens",
        ),
    ],
)
def test_what_is_no_pattern_says_why(level: np.ndarray, reason: str) -> None:
    found = pattern_of(level)
    assert isinstance(found, str)
    assert reason in found
