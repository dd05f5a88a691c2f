"""The vectorized filters against a plain one for a single row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime import filters as module
from optc.runtime.executable import Float32
from optc.runtime.filters import Candidates, Filters, filter_sorted, filter_whole, likeliest


def make_filters(rows: list[tuple[float, int, float, float]]) -> Filters:
    columns = list(zip(*rows, strict=True))
    return Filters(
        np.array(columns[0], np.float64),
        np.array(columns[1], np.int64),
        np.array(columns[2], np.float64),
        np.array(columns[3], np.float64),
    )


def kept_naively(
    logits: Float32, temperature: float, top_k: int, top_p: float, min_p: float
) -> dict[int, float]:
    """Tokens that stay and their scores: one row, one filter after the other."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if top_k:
        order = order[:top_k]
    scores = {token: float(logits[token]) / temperature for token in order}
    masses = {token: np.exp(score - scores[order[0]]) for token, score in scores.items()}
    whole = sum(masses.values())
    kept: dict[int, float] = {}
    reached = 0.0
    for token in order:
        if kept and (reached >= top_p * whole or masses[token] < min_p):
            break
        kept[token] = scores[token]
        reached += masses[token]
    return kept


def kept(candidates: Candidates, row: int) -> dict[int, float]:
    scores = candidates.scores[row]
    ids = np.arange(len(scores)) if candidates.ids is None else candidates.ids[row]
    return {int(ids[i]): float(scores[i]) for i in np.flatnonzero(np.isfinite(scores))}


rows = st.tuples(
    st.sampled_from([0.3, 1.0, 2.5]),
    st.sampled_from([0, 1, 2, 7, 60, 1000]),
    st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)


@settings(deadline=None, derandomize=True)
@given(
    parameters=st.lists(rows, min_size=1, max_size=6),
    seed=st.integers(0, 1000),
    distinct=st.sampled_from([3, 1000]),
    first_look=st.sampled_from([1, 4, 256]),
)
def test_sorted_filters_equal_the_plain_ones(
    parameters: list[tuple[float, int, float, float]], seed: int, distinct: int, first_look: int
) -> None:
    """Ties (3 distinct logits) and the growing look included."""
    rng = np.random.default_rng(seed)
    logits = (rng.integers(0, distinct, (len(parameters), 60)) / distinct * 6).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FIRST_LOOK", first_look)
        candidates = filter_sorted(logits, make_filters(parameters))
    for i, row in enumerate(parameters):
        expected = kept_naively(logits[i], *row)
        assert kept(candidates, i) == pytest.approx(expected)


@settings(deadline=None, derandomize=True)
@given(
    parameters=st.lists(
        st.tuples(
            st.sampled_from([0.3, 1.0, 2.5]), st.just(0), st.just(1.0), st.sampled_from([0.0, 0.2])
        ),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 1000),
)
def test_whole_rows_equal_the_plain_ones(
    parameters: list[tuple[float, int, float, float]], seed: int
) -> None:
    logits = np.random.default_rng(seed).normal(size=(len(parameters), 60)).astype(np.float32)
    candidates = filter_whole(logits, make_filters(parameters))
    for i, row in enumerate(parameters):
        assert kept(candidates, i) == pytest.approx(kept_naively(logits[i], *row))


def test_a_row_does_not_depend_on_the_other_rows() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(8, 3000)).astype(np.float32)
    parameters = [(0.9, 40, 0.9, 0.02), (1.0, 0, 0.95, 0.0), (1.1, 2000, 1.0, 0.0)] * 3
    together = filter_sorted(logits, make_filters(parameters[:8]))
    for i in range(8):
        alone = filter_sorted(logits[i : i + 1], make_filters(parameters[i : i + 1]))
        assert kept(alone, 0) == kept(together, i)


def test_the_likeliest_come_in_order_with_lower_ids_first() -> None:
    logits = np.array([[0.0, 3.0, -0.0, 3.0, -np.inf, -2.0]], np.float32)
    assert likeliest(logits, 6).tolist() == [[1, 3, 0, 2, 5, 4]]
    assert likeliest(logits, 3).tolist() == [[1, 3, 0]]
