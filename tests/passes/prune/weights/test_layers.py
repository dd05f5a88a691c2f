"""Layers that read one input are pruned as one weight; what does not fit is named."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.linear import Linear, find_linears
from optc.ir.pipeline.base import PassReport
from optc.passes.calibrating.targets import Correction
from optc.passes.prune.weights.amounts import Amount, LayerAmounts
from optc.passes.prune.weights.kept import find_pruned
from optc.passes.prune.weights.layers import PruneLayers
from optc.passes.prune.weights.methods import Method
from optc.passes.quantize.propagate.stages import rows_of
from optc.proof.reference.calibration import CalibrationStore
from tests.passes.prune.weights.problems import correlated
from tests.support.dense_models import D, dense_model

HESSIAN = correlated(D)


def layers(texts: tuple[str, ...] = (), *, name: str = "sparsegpt") -> PruneLayers:
    amounts = LayerAmounts.read(Amount(0.5), texts, "here")
    return PruneLayers(Method(name), amounts, CalibrationStore(), "kept", PassReport(), True)


@pytest.fixture
def readers() -> list[Linear]:
    """Q, K and V of a layer."""
    return find_linears(dense_model(1))[:3]


def test_layers_of_one_input_are_one_weight(readers: list[Linear]) -> None:
    work = layers()
    found = work(readers, HESSIAN, {})
    whole = np.concatenate([rows_of(one) for one in readers])
    expected = Method("sparsegpt")(whole, HESSIAN, Amount(0.5), "w")
    np.testing.assert_array_equal(np.concatenate([*found.values()]), expected)
    assert list(found) == [one.initializer for one in readers]
    assert work.report.details == {"50 %": 3}
    facts = work.facts()
    assert facts["sparsity"] == 0.5
    assert facts["weights"] == whole.size
    assert facts["loss_of_results"]["weight"] == "l0.q"
    assert 0 < facts["loss_of_results"]["largest"] < 1


def test_targets_are_pruned_not_weights(readers: list[Linear]) -> None:
    work = layers(name="wanda")
    add = np.full(readers[1].weight.rows_shape, 5, np.float32)
    found = work(readers[1:2], HESSIAN, {readers[1].initializer: Correction(add=add)})
    rows = found[readers[1].initializer]
    target = rows_of(readers[1]) + add
    np.testing.assert_array_equal(rows[rows != 0], target[rows != 0])


def test_amounts_differ_by_layer_and_zero_stays(readers: list[Linear]) -> None:
    work = layers(("*.k=2:4", "*.v=0"))
    found = work(readers, HESSIAN, {})
    assert readers[2].initializer not in found
    pattern = found[readers[1].initializer].reshape(-1, 4)
    assert (np.count_nonzero(pattern, axis=1) == 2).all()
    assert work.report.details == {"50 %": 1, "2:4": 1}
    assert any("it stays dense (sparsity=0)" in line for line in work.report.skipped)
    assert find_pruned(work.store, readers[2], "kept") is None


def test_a_width_that_the_pattern_does_not_divide_is_named() -> None:
    (only,) = (one for one in find_linears(dense_model(1)) if one.name == "l0.down")
    work = layers()
    work.amounts = LayerAmounts(Amount(2 / 9, 7, 9), (), "here")
    assert not work([only], correlated(80), {})
    assert work.report.skipped == [
        f"{only.matmul.name or 'MatMul'}: K=80 of l0.down is not a multiple of 9: it stays dense"
    ]


def test_without_replacing_later_layers_see_nothing(readers: list[Linear]) -> None:
    work = layers()
    work.replaces = False
    assert work(readers, HESSIAN, {}) == {}
    assert find_pruned(work.store, readers[0], "kept") is not None


def test_what_was_pruned_is_not_pruned_again(readers: list[Linear]) -> None:
    """In a model of some layers, the store has the weights of the whole one."""
    work = layers()
    first = work(readers, HESSIAN, {})
    again = work(readers, np.eye(D), {})
    for mine, theirs in zip(first.values(), again.values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert work.facts()["sparsity"] == 0.5
