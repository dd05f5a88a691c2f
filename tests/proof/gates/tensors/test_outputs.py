"""Figures of outputs, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optc.errors import UnsupportedError
from optc.proof.gates.tensors.outputs import OutputFigures


def figures(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float | None]:
    found = OutputFigures()
    found.add({"y": ours}, {"y": theirs})
    return found.values()


def test_equal_outputs_have_no_error() -> None:
    same = np.arange(6.0).reshape(2, 3)
    assert figures(same, same) == {
        "output_error": 0,
        "cosine_mean": 1,
        "cosine_min": 1,
        "sqnr_db": 200.0,
        "top1_agreement": 1,
    }


def test_an_error_that_is_nearly_none_counts_as_none() -> None:
    same = np.array([[1e12, 1.0]])
    assert figures(same + np.array([0.0, 1e-9]), same)["sqnr_db"] == 200.0


def test_rows_are_compared_one_by_one() -> None:
    found = figures(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [2.0, 0.0]]))
    assert (found["cosine_mean"], found["cosine_min"], found["top1_agreement"]) == (0.5, 0, 0.5)
    assert found["output_error"] == 1
    assert found["sqnr_db"] == pytest.approx(10 * math.log10(5 / 8))


def test_rows_of_zeros_have_a_direction_of_none_but_themselves() -> None:
    zeros, ones = np.zeros((1, 3)), np.ones((1, 3))
    for ours, theirs, cosine in ((zeros, ones, 0), (ones, zeros, 0), (zeros, zeros, 1)):
        found = figures(ours, theirs)
        assert (found["cosine_mean"], found["cosine_min"]) == (cosine, cosine)


def test_figures_are_over_all_samples() -> None:
    found = OutputFigures()
    found.add({"y": np.array([[1.0, 0.0]])}, {"y": np.array([[1.0, 0.0]])})
    found.add({"y": np.array([[0.0, 4.0]])}, {"y": np.array([[0.0, 8.0]])})
    assert found.values()["output_error"] == 0.5
    assert found.values()["cosine_min"] == 1


def test_integers_and_scalars_have_no_rows() -> None:
    found = figures(np.array([3, 5]), np.array([3, 4]))
    assert found["output_error"] == 0.25
    assert found["cosine_mean"] is found["top1_agreement"] is found["sqnr_db"] is None


def test_what_is_not_finite_must_be_so_in_both() -> None:
    bad, good = np.array([[np.inf, 1.0]]), np.array([[2.0, 1.0]])
    assert figures(bad, good)["output_error"] == math.inf
    assert figures(bad, bad)["output_error"] == 0
    for other in (-np.inf, np.nan):
        assert figures(np.array([[other, 1.0]]), bad)["output_error"] == math.inf
        assert figures(bad, np.array([[other, 1.0]]))["output_error"] == math.inf
    assert figures(bad * np.nan, bad * np.nan)["output_error"] == 0


def test_another_shape_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match=r"output y: the engine gives the shape"):
        figures(np.zeros((2, 3)), np.zeros((3, 2)))
