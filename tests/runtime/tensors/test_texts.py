"""Logits of texts as probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.tensors.texts import TextScores

ROWS = np.array([[0.0, 1.0, 2.0], [-50.0, 0.0, 700.0]], np.float32)


def test_classes_of_which_one_holds() -> None:
    found = TextScores(("a", "b", "c")).probabilities(ROWS)
    exact = np.exp(ROWS.astype(np.float64) - ROWS.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found, exact / exact.sum(axis=1, keepdims=True), rtol=1e-12)


def test_each_apart() -> None:
    found = TextScores(scores="sigmoid").probabilities(ROWS)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-ROWS.astype(np.float64))), rtol=1e-12)


def test_as_they_are() -> None:
    found = TextScores(scores="plain").probabilities(ROWS)
    np.testing.assert_array_equal(found, ROWS.astype(np.float64))


@pytest.mark.parametrize(("index", "name"), [(0, "a"), (1, "b"), (2, "2")])
def test_a_class_without_a_name_has_its_number(index: int, name: str) -> None:
    assert TextScores(("a", "b")).label(index) == name
