"""Predicted work of pruning weights: what is run, and what each method adds."""

from __future__ import annotations

import pytest

from optc.passes.prune.weights.methods import Method
from optc.passes.prune.weights.prune_weights import PruneWeights
from optc.passes.prune.weights.work import pruning_work
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.passes.quantize.predictions.work import inputs_of, observing, propagating
from optc.pipeline.work import Work
from optc.reference.streams.choice import products_here
from tests.support.dense_models import dense_model

TEXT = TextShape(2, 64)


def work(
    name: str, *, refit: bool = False, corrected: bool = True, patterned: bool = False
) -> Work:
    method = Method(name, refit)
    return pruning_work(
        dense_model(2), TEXT, method, "float32", corrected=corrected, patterned=patterned
    )


def test_magnitudes_read_no_text() -> None:
    found = work("magnitude", corrected=False)
    weights = sum(k * sum(rows) for k, rows in inputs_of(dense_model(2)))
    assert found.float32 == 0
    assert 0 < found.steps < 100 * weights


def test_other_methods_run_the_model_twice() -> None:
    model = dense_model(2)
    twice = propagating(model, TEXT, None, ("float32", "float32"), gptq=False)
    plain = observing(model, TEXT, hessians=True) + observing(model, TEXT, hessians=False)
    assert work("sparsegpt").float32 > twice.float32 > 0
    assert work("wanda", corrected=False).float32 == plain.float32


def test_what_admm_fits_grows_with_the_square_of_the_inputs() -> None:
    rest = work("wanda").float32
    fitted = sum(sum(rows) * k * k for k, rows in inputs_of(dense_model(2)))
    assert (work("admm").float32 - rest) / fitted == pytest.approx(1 + 2 * 35 + 30)
    assert work("admm").float64 > work("wanda").float64
    assert work("wanda", refit=True).float32 > rest


def test_patterns_take_longer_to_choose() -> None:
    assert work("admm", patterned=True).steps > 1.5 * work("admm").steps
    assert work("admm", patterned=True).float32 == work("admm").float32


def test_the_pass_says_how_it_prunes() -> None:
    model = dense_model(2)
    one = PruneWeights(folder="x", pattern="2:4", windows=2, window_tokens=64)
    expected = pruning_work(
        model, TEXT, Method("admm"), products_here(), corrected=True, patterned=True
    )
    assert one.work(model) == expected
