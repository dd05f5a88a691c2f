"""Gradients by values inside a model: against finite differences of the float32 reference."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import Linear, find_linears
from optc.passes.prune.structured.cut import given_rows
from optc.reference.blockwise import BlockwiseReference
from optc.training import losses
from optc.training.gradients import run_backward
from tests.support.dense_models import V, dense_model

TOKENS = np.random.default_rng(3).integers(0, V, (2, 17), np.int32)
_STEP = 0.02


def loss(model: ir.Model, window: np.ndarray) -> float:
    """Minus the sum of log p(next token), in float64 from the reference's logits."""
    reference = BlockwiseReference(model, 1)
    hidden = reference.hidden_states(window[None])
    tiles = [reference.logits(hidden, tile) for tile in reference.tiles()]
    reference.close()
    logits = np.concatenate(tiles, -1).reshape(len(window), -1)[:-1].astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    total = np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(logits)), window[1:]]
    return float(total.sum())


def slope(linear: Linear, column: int, window: np.ndarray, model: ir.Model) -> float:
    """The loss's derivative by a factor of one input of a layer, which is Σ a ∂L/∂a."""
    rows, found = linear.weight.read_rows(0, linear.weight.rows_shape[0]), []
    for factor in (1 + _STEP, 1 - _STEP):
        changed = rows.copy()
        changed[:, column] *= factor
        linear.initializer.const_value = given_rows(linear.weight, changed)
        found.append(loss(model, window))
    linear.initializer.const_value = given_rows(linear.weight, rows)
    return (found[0] - found[1]) / (2 * _STEP)


@pytest.mark.parametrize("name", ["l0.down", "l1.o"])
def test_they_are_what_the_loss_changes_by(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "SLICE_LOGITS", 5 * V)  # slices of five rows, the last of one
    model = dense_model(2, softcap=8.0)
    linear = next(one for one in find_linears(model) if one.name == name)
    seen: list[np.ndarray] = []

    def keep(window: object) -> None:
        values, gradients = window[linear.x.name]  # type: ignore[index]
        assert values.shape == gradients.shape == (17, linear.weight.rows_shape[1])
        seen.append((values * gradients).sum(0))

    run_backward(model, TOKENS, {str(linear.x.name)}, 1, keep)
    assert len(seen) == len(TOKENS)
    for window, found in zip(TOKENS, seen, strict=True):
        for column in (0, 7, 41):
            expected = slope(linear, column, window, model)
            assert found[column] == pytest.approx(expected, abs=2e-3)
    assert np.abs(np.stack(seen)).max() > 0.02


def test_what_the_loss_does_not_depend_on_is_named() -> None:
    with pytest.raises(ValueError, match="unread: the loss does not depend on it"):
        run_backward(dense_model(1), TOKENS, {"unread"}, 1, lambda window: None)
