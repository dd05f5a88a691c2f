"""Values come back as they were kept; decibels are those of the formula."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc.proof.gates.bisect.value_store import EXACT_DB, ValueStore, sqnr_db


def test_values_come_back_by_window_or_by_row(tmp_path: Path) -> None:
    store = ValueStore(tmp_path)
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    store.put("a/b", array)
    store.put("c", -array)
    np.testing.assert_array_equal(store.get("a/b", by_row=False), array)
    np.testing.assert_array_equal(store.get("a/b", by_row=True), array.reshape(6, 4))
    store.put("a/b", 2 * array)
    np.testing.assert_array_equal(store.get("a/b", by_row=False), 2 * array)
    assert "c" in store
    assert "d" not in store


@pytest.mark.parametrize(("noise", "decibels"), [(0.1, 20.0), (1.0, 0.0), (10.0, -20.0)])
def test_ten_times_less_noise_is_twenty_decibels(noise: float, decibels: float) -> None:
    exact = np.array([[3.0, -4.0], [0.0, 5.0]], np.float32)
    assert sqnr_db(exact, (exact * (1 + noise)).ravel()) == pytest.approx(decibels, abs=1e-5)


def test_it_is_bounded_on_both_sides() -> None:
    exact = np.ones(4, np.float32)
    assert sqnr_db(exact, exact) == EXACT_DB
    assert sqnr_db(np.zeros(4), exact) == -EXACT_DB
    for bad in (np.nan, np.inf):
        assert sqnr_db(exact, np.array([1, 1, 1, bad], np.float32)) == -EXACT_DB
