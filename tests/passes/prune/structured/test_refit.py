"""Fitting what is left, stage by stage, against least squares in NumPy."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import Linear, find_linear
from optc.ir.pipeline.base import PassReport
from optc.passes.prune.structured import refit as module
from optc.passes.prune.structured.decisions import Decisions, Ledger
from optc.passes.prune.structured.refit import Cut, RefitStages
from optc.proof.reference.calibration import CalibrationStore
from optc.proof.reference.streams.products import Float32Products
from optc.proof.reference.streams.stage import Stage
from optc.proof.reference.two_streams import Pair, Seen
from tests.support.ir_text import f32, model_of

TOKENS = 4000


def layer() -> tuple[Linear, ir.Value]:
    """A linear layer whose result is added to a residual, and that residual."""
    nodes = "m = MatMul (x, w)\ny = Add (r, m)"
    signature = "g (float[1,S,6] x, float[1,S,4] r) => (float[1,S,4] y)"
    model = model_of(signature, nodes, {"w": f32(6, 4)})
    linear = find_linear(model.graph[0])
    assert linear is not None
    return linear, model.graph.inputs[1]


def values(linear: Linear, residual: ir.Value) -> dict[ir.Value, Pair]:
    """Inputs and residual of both runs, of few dependent sources."""
    rng = np.random.default_rng(3)
    sources = rng.standard_normal((TOKENS, 9))

    def mixed(width: int) -> np.ndarray:
        noise = 0.3 * rng.standard_normal((TOKENS, width))
        return (sources @ rng.standard_normal((9, width)) + noise).astype(np.float32)[None]

    x, r = mixed(6), mixed(4)
    return {
        linear.x: Pair(x + 0.2 * mixed(6), x),
        residual: Pair(r + 0.2 * mixed(4), r),
    }


def seen_by(linear: Linear, residual: ir.Value, pairs: dict[ir.Value, Pair]) -> tuple[Stage, Seen]:
    """The layer's stage, and what is known before it runs."""
    add = next(use.node for use in linear.output.uses())
    total = add.outputs[0]
    stage = Stage((linear.matmul, add), (linear.x, residual), (total,), (linear,))
    original = {value: pair.original for value, pair in pairs.items()}
    weight = linear.weight.read_rows(0, 4)
    original[total] = original[linear.x] @ weight.T + original[residual]
    changed = {value: pair.changed for value, pair in pairs.items()}
    return stage, Seen(changed, original, Float32Products())


def least_squares(linear: Linear, residual: ir.Value, kept: list[int]) -> np.ndarray:
    """What gives back most of W x + r from x' and r'."""
    found = values(linear, residual)
    x, r = found[linear.x], found[residual]
    weight = linear.weight.read_rows(0, 4).astype(np.float64)
    wanted = x.original[0] @ weight.T + r.original[0] - r.changed[0]
    return np.linalg.lstsq(x.changed[0][:, kept], wanted, rcond=None)[0].T


def new_ledger() -> Ledger:
    return Ledger(CalibrationStore(), "prune-width")


def decided(stages: RefitStages, linear: Linear) -> Decisions:
    stages.ledger.close()
    found = stages.ledger.find([linear.name])
    assert found is not None
    return found


def fitted(cut: Cut | None, *, refit: bool = True) -> tuple[np.ndarray, RefitStages, Linear]:
    linear, residual = layer()
    cuts = {} if cut is None else {linear.initializer: cut}
    stages = RefitStages(cuts, new_ledger(), PassReport(), TOKENS, refit)
    weights = stages.weights(*seen_by(linear, residual, values(linear, residual)))
    return np.asarray(weights[linear.initializer]), stages, linear


@pytest.fixture
def undamped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optc.passes.numerics.gptq.factor.DAMPING", 1e-9)
    monkeypatch.setattr("optc.passes.prune.structured.obs.DAMPING", 1e-9)


@pytest.mark.usefixtures("undamped")
def test_a_layer_makes_up_for_what_both_its_inputs_and_its_residual_lost() -> None:
    weight, stages, linear = fitted(None)
    np.testing.assert_allclose(weight, least_squares(*layer(), [*range(6)]), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(decided(stages, linear).weights[linear.name], weight)
    assert decided(stages, linear).kept == {}


@pytest.mark.usefixtures("undamped")
def test_columns_that_are_known_to_go_are_zero_and_the_others_make_up_for_them() -> None:
    weight, stages, linear = fitted(Cut(3, 2, np.array([0, 2])))  # units of two columns
    kept = [0, 1, 4, 5]
    assert not weight[:, 2:4].any()
    np.testing.assert_allclose(weight[:, kept], least_squares(*layer(), kept), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(decided(stages, linear).weights[linear.name], weight[:, kept])
    assert decided(stages, linear).kept[linear.name].tolist() == [0, 2]


@pytest.mark.usefixtures("undamped")
def test_columns_are_chosen_by_what_the_fit_then_loses() -> None:
    _, stages, cut = fitted(Cut(6, 5))
    linear, residual = layer()
    found = values(linear, residual)
    x, r = found[linear.x], found[residual]
    weight = linear.weight.read_rows(0, 4).astype(np.float64)
    wanted = x.original[0] @ weight.T + r.original[0] - r.changed[0]
    losses = {}
    for gone in range(6):
        left = x.changed[0][:, np.setdiff1d(np.arange(6), [gone])]
        losses[gone] = np.linalg.lstsq(left, wanted, rcond=None)[1].sum()
    assert np.setdiff1d(np.arange(6), decided(stages, cut).kept[cut.name]) == [
        min(losses, key=lambda one: losses[one])
    ]


def test_without_fitting_columns_are_cut_and_other_layers_left() -> None:
    weight, stages, linear = fitted(Cut(6, 4), refit=False)
    kept = decided(stages, linear).kept[linear.name]
    original = linear.weight.read_rows(0, 4)
    np.testing.assert_array_equal(weight[:, kept], original[:, kept])
    assert np.count_nonzero(weight.any(axis=0)) == 4
    assert not decided(stages, linear).weights
    linear, residual = layer()
    stages = RefitStages({}, new_ledger(), PassReport(), TOKENS, refit=False)
    assert stages.weights(*seen_by(linear, residual, values(linear, residual))) == {}


def test_a_whole_sublayer_goes_without_a_fit() -> None:
    weight, stages, linear = fitted(Cut(1, 0))
    assert not weight.any()
    assert weight.shape == (4, 6)
    assert decided(stages, linear).kept[linear.name].size == 0
    assert not decided(stages, linear).weights


def test_too_few_tokens_correct_no_drift_but_columns_are_still_made_up_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TOKENS_PER_INPUT", TOKENS)
    weight, stages, linear = fitted(None)
    np.testing.assert_array_equal(weight, linear.weight.read_rows(0, 4))
    assert stages.report.skipped == ["MatMul: 4000 tokens are too few to correct 6 inputs"]
    cut, _, _ = fitted(Cut(6, 4, np.arange(4)))
    assert np.abs(cut[:, :4] - linear.weight.read_rows(0, 4)[:, :4]).max() > 1e-3


def test_layers_that_nothing_has_changed_yet_stay() -> None:
    linear, residual = layer()
    same = {
        value: Pair(one.original, one.original) for value, one in values(linear, residual).items()
    }
    stages = RefitStages({}, new_ledger(), PassReport(), TOKENS)
    assert stages.weights(*seen_by(linear, residual, same)) == {}


def test_columns_of_inputs_that_are_always_zero_go_first() -> None:
    linear, residual = layer()
    found = values(linear, residual)
    for array in (found[linear.x].original, found[linear.x].changed):
        array[..., 4] = 0
    stages = RefitStages({linear.initializer: Cut(6, 5)}, new_ledger(), PassReport(), TOKENS)
    stages.weights(*seen_by(linear, residual, found))
    assert decided(stages, linear).kept[linear.name].tolist() == [0, 1, 2, 3, 5]
