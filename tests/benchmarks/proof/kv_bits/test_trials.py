"""The types that are tried, and what they lose: each question of the trial has its pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks.proof.kv_bits.codes import Array, IntegerGroups
from benchmarks.proof.kv_bits.simulated import KVType
from benchmarks.proof.kv_bits.trials import GROUPS, LATEST, Judge, types
from optc.compiling.recipes.recipe import load_recipe
from optc.proof.gates.measure import judge

EXAMPLES = Path(__file__).parents[4] / "examples"


@dataclass(frozen=True)
class WrongScale(IntegerGroups):
    """int4 whose first head comes back half as large."""

    def represented(self, rows: Array) -> Array:
        found = super().represented(rows)
        found[:, 0] *= 0.5
        return found


@pytest.fixture(scope="module")
def trained() -> Judge:
    """The trained example: others hardly find an earlier copy."""
    text = EXAMPLES / "text/code_heldout.jsonl"
    return Judge(EXAMPLES / "models/pycode", text, text, windows=2, balanced=1)


def test_rotation_groups_and_windows_are_tried_by_themselves() -> None:
    found = types()
    for group in GROUPS:
        plain = found[f"int2, groups of {group}"]
        assert plain.keys.tokens == group
        turned = replace(plain, turned_keys=True, turned_values=True)
        assert found[f"int2, groups of {group}, rotated"] == turned
    for latest in LATEST:
        windowed = found[f"int2, groups of 32, rotated, latest {latest} in int8"]
        assert windowed == replace(found["int2, groups of 32, rotated"], window=latest)


def test_a_type_is_judged_on_windows_and_on_copies(trained: Judge) -> None:
    exact, int2 = trained.figures(KVType()), trained.figures(types()["int2, groups of 32"])
    assert exact["kl_mean"] == pytest.approx(0, abs=1e-5)
    assert exact["top1_agreement"] == 1
    assert exact["copy_nll_added"] == pytest.approx(0, abs=1e-4)
    assert int2["kl_mean"] > 0.01
    assert int2["copy_kl_mean"] > 0.01
    assert int2["bytes"]["4096"] < exact["bytes"]["4096"] / 9


def test_a_wrong_scale_of_a_head_of_keys_exceeds_the_bound_of_kv_int4(trained: Judge) -> None:
    bound = load_recipe("kv-int4").gates["copy_nll_added"]
    int4 = types()["int4"]
    found = [trained.figures(one) for one in (int4, replace(int4, keys=WrongScale()))]
    passed = [judge("copy_nll_added", one["copy_nll_added"], bound).passed for one in found]
    assert passed == [True, False], found
