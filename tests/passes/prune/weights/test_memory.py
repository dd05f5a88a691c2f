"""Predictions of memory: methods that hold more are predicted to."""

from __future__ import annotations

from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.working_bytes import propagating
from optc.passes.prune.weights.memory import pruning
from optc.passes.prune.weights.methods import Method
from optc.passes.prune.weights.prune_weights import PruneWeights
from optc.proof.reference.streams.choice import dtype_of, products_here
from tests.support.dense_models import FF, HEAD, HKV, D, H, dense_model

TEXT = TextShape(1, 32)


def test_a_weight_counts_with_all_that_read_its_input() -> None:
    model = dense_model(2)
    weights = 2 * (2 * D * (H + HKV) * HEAD + 3 * D * FF)
    shapes = (((H + 2 * HKV) * HEAD, D), (D, H * HEAD), (2 * FF, D), (D, FF))
    largest = max(10 * 4 * n * k + 5 * 8 * k * k for n, k in shapes)
    runs = propagating(model, TEXT, 4, 0, lambda n, k: 1 << 40) - (1 << 40)
    assert pruning(model, TEXT, Method("admm"), 4) == runs + 4 * weights + largest


def test_methods_that_hold_more_take_more() -> None:
    model = dense_model(2)
    plain, fitted = (pruning(model, TEXT, Method("wanda", refit), 4) for refit in (False, True))
    assert plain < pruning(model, TEXT, Method("sparsegpt"), 4) < fitted
    assert fitted == pruning(model, TEXT, Method("admm"), 4)


def test_the_pass_states_it() -> None:
    model, one = dense_model(1), PruneWeights(windows=1, window_tokens=32)
    size = dtype_of(products_here()).itemsize
    assert one.costs(model).working == pruning(model, TEXT, Method("admm"), size)
