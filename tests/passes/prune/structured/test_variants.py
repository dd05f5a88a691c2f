"""KL of models without units, beside models that are cut and run whole."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import find_linears
from optc.ir.pipeline.base import PassReport
from optc.passes.prune.structured.channels import KV_GROUPS, find_channels
from optc.passes.prune.structured.cut import cut_channels, given_rows, set_weight
from optc.passes.prune.structured.variants import ChannelVariants, measure_kl, zero_weight
from tests.passes.prune.structured.on_letters import TOKENS
from tests.support.dense_models import dense_model
from tests.support.ragged import run, run_dense

FEW = TOKENS[:2]


def kl(model: ir.Model, other: ir.Model) -> float:
    """Mean KL of the next token, of whole models in ONNX Runtime."""
    total = 0.0
    for window in FEW.tolist():
        logs = []
        for one in (model, other):
            logits = run_dense(one, window).astype(np.float64)
            logs.append(logits - np.log(np.exp(logits).sum(1, keepdims=True)))
        total += float((np.exp(logs[0]) * (logs[0] - logs[1])).sum(1).mean())
    return total / len(FEW)


@pytest.mark.parametrize("refit", [False, True])
def test_a_choice_costs_what_the_cut_model_does(refit: bool) -> None:
    model, cut = dense_model(2), dense_model(2)
    found = find_channels(model, KV_GROUPS, PassReport())
    kept = {1: np.array([0])}
    measured = ChannelVariants(model, found, TOKENS, refit=refit).measure(FEW, [kept, {}])
    one = find_channels(cut, KV_GROUPS, PassReport())[1]
    fitted = _least_squares(one.linears[0].name) if refit else None
    cut_channels(cut, one, kept[1])
    if fitted is not None:
        (linear,) = one.linears
        set_weight(linear.initializer, given_rows(linear.weight, fitted))
    np.testing.assert_allclose(measured[0], kl(model, cut), rtol=2e-2)
    assert measured[1] < 1e-9


def _least_squares(name: str) -> np.ndarray:
    """The output layer of the second attention, fitted to its first two heads' columns."""
    model = dense_model(2)
    linear = next(one for one in find_linears(model) if one.name == name)
    model.graph.outputs.append(linear.x)
    linear.x.type, linear.x.shape = ir.TensorType(ir.DataType.FLOAT), None
    positions = np.tile(np.arange(TOKENS.shape[1], dtype=np.int64), (len(TOKENS), 1))
    feeds = {"input_ids": TOKENS.astype(np.int64), "position_ids": positions}
    x = run(model, feeds)[1].reshape(TOKENS.size, -1).astype(np.float64)
    weight = linear.weight.read_rows(0, linear.weight.rows_shape[0]).astype(np.float64)
    half = x.shape[1] // 2
    damping = 0.01 * np.mean(np.square(x).mean(axis=0)) * len(x)
    gram = x.T @ x + damping * np.eye(len(x.T))
    fit = weight @ gram[:, :half] @ np.linalg.inv(gram[:half, :half])
    return fit.astype(np.float32)


def test_a_weight_of_zeros_costs_what_the_model_without_it_does() -> None:
    model, zeroed = dense_model(2), dense_model(2)
    linear = next(one for one in find_linears(model) if one.name == "l1.down")
    (measured,) = measure_kl(model, FEW, [{linear.initializer: zero_weight(linear)}])
    other = next(one for one in find_linears(zeroed) if one.name == "l1.down")
    set_weight(other.initializer, zero_weight(other))
    np.testing.assert_allclose(measured, kl(model, zeroed), rtol=1e-3)
