"""Figures that are no finite numbers, and the place where they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optc.proof.gates.finite import only_finite, perplexity, perplexity_figures, place

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (1.5, 1.5),
        *((one, None) for one in (NAN, INF, -INF)),
        (np.float64(NAN), None),
        (3, 3),
        ("nan", "nan"),
        (True, True),
        (None, None),
        ({"a": NAN, "b": {"c": [1.0, INF]}}, {"a": None, "b": {"c": [1.0, None]}}),
        ((1.0, NAN), (1.0, None)),
        ([(NAN,)], [(None,)]),
    ],
)
def test_only_finite_numbers_stay(value: Any, found: Any) -> None:
    assert only_finite(value) == found
    assert type(only_finite(value)) is type(found)


def test_a_perplexity_that_no_float_holds_is_infinite() -> None:
    assert perplexity(0.0) == 1
    assert perplexity(1.0) == pytest.approx(np.e)
    assert perplexity(1e4) == INF


@pytest.mark.parametrize("wrong", [NAN, INF])
def test_the_first_row_without_a_number_is_named(wrong: float) -> None:
    fine, broken = np.array([1.0, 2.0, 3.0]), np.array([1.0, wrong, wrong])
    assert place([fine, fine]) == ""
    assert place([fine, broken, broken]) == "position 1 of window 1"
    assert perplexity_figures([fine, broken]) == {
        "perplexity": None,
        "not_measured": "the engine's logits are no finite numbers at position 1 of window 1",
    }


def test_perplexity_is_over_all_rows_alike() -> None:
    assert perplexity_figures([np.array([1.0]), np.array([2.0, 3.0])]) == {
        "perplexity": pytest.approx(np.exp(2.0))
    }
    assert perplexity_figures([np.array([1e4])]) == {
        "perplexity": None,
        "not_measured": "the perplexity is larger than any number",
    }
