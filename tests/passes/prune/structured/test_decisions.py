"""Decisions in the calibration store: of one pass, about the weights that are asked for."""

from __future__ import annotations

import numpy as np

from optc.passes.prune.structured.decisions import Decisions, Ledger
from optc.proof.reference.calibration import CalibrationStore
from tests.support.ir_text import f32


def test_what_was_kept_is_found_of_the_weights_that_are_there() -> None:
    ledger = Ledger(CalibrationStore(), "prune-width")
    ledger.keep_units("a", np.array([0, 3]))
    ledger.keep_units("b", np.zeros(0, np.intp))
    ledger.keep_weight("a", f32(4, 2))
    ledger.keep_weight("c", f32(3, 3))
    ledger.close()
    found = ledger.find(["a", "c", "d"])
    assert found is not None
    assert {name: units.tolist() for name, units in found.kept.items()} == {"a": [0, 3]}
    assert found.weights.keys() == {"a", "c"}
    np.testing.assert_array_equal(found.weights["c"], f32(3, 3))
    gone = ledger.find(["b"])
    assert gone is not None
    assert gone.kept["b"].size == 0


def test_another_pass_has_decided_nothing_and_nothing_counts_before_all_is_decided() -> None:
    store = CalibrationStore()
    ledger = Ledger(store, "prune-width")
    ledger.keep_units("a", np.array([0]))
    assert ledger.find(["a"]) is None
    ledger.close()
    assert Ledger(store, "prune-heads").find(["a"]) is None
    assert ledger.find(["b"]) == Decisions()


def test_weights_beyond_the_memory_of_the_store_lie_in_its_file() -> None:
    ledger = Ledger(CalibrationStore(memory_bytes=64), "prune-depth")
    ledger.keep_weight("a", f32(16, 16))
    ledger.close()
    found = ledger.find(["a"])
    assert found is not None
    assert isinstance(found.weights["a"], np.memmap)
    np.testing.assert_array_equal(found.weights["a"], f32(16, 16))
