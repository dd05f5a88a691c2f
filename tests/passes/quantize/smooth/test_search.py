"""AWQ's search against running the layers on tokens, with a rounding written anew."""

from __future__ import annotations

import numpy as np
import pytest

from optc.ir.linear import Linear, find_linear
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.smooth.search import ALPHAS, best_scale
from tests.support.ir_text import Array, f32, model_of

K, INT8 = 32, Scheme(8, 0, True)
SAME = np.arange(K)


def layer(rows: Array) -> Linear:
    weights = {"w": np.ascontiguousarray(rows.T)}
    model = model_of(
        f"g (float[1,S,{K}] x) => (float[1,S,{len(rows)}] y)", "y = MatMul (x, w)", weights
    )
    found = find_linear(model.graph[0])
    assert found is not None
    return found


def rounded(rows: Array) -> Array:
    """To int8 per row."""
    step = np.abs(rows).max(axis=1, keepdims=True) / 127
    return np.rint(rows / step) * step


def outliers(seed: int) -> Array:
    """Tokens [T, K], some of whose channels are large."""
    x = np.random.default_rng(seed).standard_normal((400, K)) * np.exp(f32(K) * 1.5)
    return x.astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_the_choice_is_the_best_on_the_tokens(seed: int) -> None:
    rows, more, x = f32(24, K, seed=seed), f32(8, K, seed=seed + 9), outliers(seed)
    mean, hessian = np.abs(x).mean(axis=0).astype(np.float64), x.T.astype(np.float64) @ x / len(x)
    losses = []
    for alpha in ALPHAS:
        scale = mean**alpha
        scale /= np.sqrt(scale.max() * scale.min())
        losses.append(
            sum(
                float(np.mean((x @ (rounded(w * scale) / scale - w).T) ** 2)) * len(w)
                for w in (rows, more)
            )
        )
    layers = [(layer(rows), INT8), (layer(more), INT8)]
    alpha, scale, share = best_scale(layers, mean, SAME, hessian)
    assert losses[ALPHAS.index(alpha)] <= 1.02 * min(losses)
    assert share == pytest.approx(losses[ALPHAS.index(alpha)] / losses[0], rel=0.02)
    assert share < 0.8
    want = mean**alpha
    np.testing.assert_allclose(scale, want / np.sqrt(want.max() * want.min()), rtol=1e-10)


def test_columns_that_share_a_channel_share_its_scale() -> None:
    x = outliers(0)
    channels = np.repeat(np.arange(K // 2), 2)
    mean = np.abs(x).mean(axis=0).reshape(-1, 2).mean(axis=1).astype(np.float64)
    hessian = x.T.astype(np.float64) @ x / len(x)
    alpha, scale, share = best_scale([(layer(f32(24, K)), INT8)], mean, channels, hessian)
    assert scale.shape == (K // 2,)
    assert alpha > 0
    assert share < 1


def test_tall_weights_are_judged_by_some_of_their_rows() -> None:
    """The same rows again and again: all tiles are alike, so that the choice is that of one."""
    x, some = outliers(1), f32(64, K)
    mean, hessian = np.abs(x).mean(axis=0).astype(np.float64), x.T.astype(np.float64) @ x / len(x)
    short = best_scale([(layer(some), INT8)], mean, SAME, hessian)
    tall = best_scale([(layer(np.tile(some, (40, 1))), INT8)], mean, SAME, hessian)
    assert tall[0] == short[0]
    assert tall[2] == pytest.approx(short[2], rel=1e-6)


def test_a_layer_without_inputs_keeps_its_scale() -> None:
    alpha, scale, share = best_scale(
        [(layer(f32(8, K)), INT8)], np.zeros(K), SAME, np.zeros((K, K))
    )
    assert (alpha, share) == (0.0, 1.0)
    assert scale.tolist() == [1.0] * K
