"""Routers against float64 and NumPy's stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.experts.top_k_router import TopKRouter
from optc.errors import UnsupportedError
from tests.backends.tvm.kernel_cases import TARGETS, Array, blank, isa_named, run
from tests.support.experts.oracle import route

CONFIGS = [
    TopKRouter(20, 3, normalize=True),
    TopKRouter(128, 8, "sigmoid", True, 1e-20, 2.5, 8, 4, "top2_sum", True),
    TopKRouter(24, 4, "softmax_after", scale=0.5),
    TopKRouter(30, 4, "softmax", groups=3, top_groups=2, group_score="max"),
]
CPU_CONFIGS = [
    TopKRouter(16, 2, "sparse_mixer", threshold=0.02),
    TopKRouter(21, 3, "sparse_mixer", scale=2.5, threshold=0.4),
    TopKRouter(20, 3, "sigmoid_after", True, 1e-20, bias=True),
]


def routed(config: TopKRouter, isa: Isa, logits: Array, bias: Array) -> tuple[Array, Array]:
    """Weights and experts."""
    rows = len(logits)
    given = [logits, bias] if config.bias else [logits]
    outputs = blank(rows, config.chosen), blank(rows, config.chosen, dtype="int32")
    weights, experts = run(config, isa, *given, *outputs)[-2:]
    return weights, experts


def softmax(x: Array) -> Array:
    powers: Array = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def oracle(config: TopKRouter, logits: Array, bias: Array) -> tuple[Array, Array]:
    """The same in float64."""
    x = logits.astype(np.float64)
    scores = {"softmax": softmax, "sigmoid": lambda v: 1 / (1 + np.exp(-v))}.get(
        config.scoring, lambda v: v
    )(x)
    choices = scores + (bias if config.bias else 0)
    if config.groups > 1:
        grouped = choices.reshape(len(x), config.groups, -1)
        best = np.sort(grouped)[:, :, ::-1]
        of_group = best[:, :, 0] + (best[:, :, 1] if config.group_score == "top2_sum" else 0)
        lost = np.argsort(-of_group, axis=1, kind="stable")[:, config.top_groups :]
        np.put_along_axis(grouped, lost[:, :, None], -np.inf, axis=1)
    experts = np.argsort(-choices, axis=1, kind="stable")[:, : config.chosen]
    weights = np.take_along_axis(scores, experts, axis=1)
    if config.scoring == "softmax_after":
        weights = softmax(weights)
    if config.scoring == "sigmoid_after":
        weights = 1 / (1 + np.exp(-weights))
    if config.scoring == "sparse_mixer":
        weights = route(x, config.chosen, scoring="sparse_mixer", threshold=config.threshold)[0]
    if config.normalize:
        weights = weights / (weights.sum(axis=1, keepdims=True) + config.norm_epsilon)
    return weights * config.scale, experts


@pytest.mark.covering
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("config", CONFIGS + CPU_CONFIGS, ids=lambda config: config.scoring)
def test_matches_float64_whatever_the_batch_mates(config: TopKRouter, target: str) -> None:
    rng, isa = np.random.default_rng(0), isa_named(target)
    logits = rng.standard_normal((70, config.experts), np.float32) * np.float32(3)
    bias = rng.standard_normal(config.experts, np.float32) * np.float32(0.1)
    weights, experts = routed(config, isa, logits, bias)
    expected, chosen = oracle(config, logits, bias)
    np.testing.assert_array_equal(experts, chosen)
    np.testing.assert_allclose(weights, expected, rtol=2e-6)
    some = routed(config, isa, logits[20:23], bias)
    np.testing.assert_array_equal(some[0], weights[20:23])
    np.testing.assert_array_equal(some[1], experts[20:23])


@pytest.mark.parametrize(
    ("config", "target"),
    [(config, "x86-64-v3") for config in (*CONFIGS[:3], CPU_CONFIGS[0])],
    ids=lambda value: getattr(value, "scoring", value),
)
def test_ties_go_to_the_lower_index_and_rows_of_no_numbers_to_different_experts(
    config: TopKRouter, target: str
) -> None:
    logits = np.zeros((4, config.experts), np.float32)
    logits[1], logits[2], logits[3] = np.nan, np.inf, -np.inf
    zeros = np.zeros(config.experts, np.float32)
    _, experts = routed(config, isa_named(target), logits, zeros)
    assert experts[0].tolist() == list(range(config.chosen))
    for row in experts:
        assert len(set(row.tolist())) == config.chosen
        assert 0 <= row.min() <= row.max() < config.experts


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scoring": "relu"}, "no router scores by 'relu'"),
        ({"groups": 2, "group_score": "mean"}, "no router scores groups by 'mean'"),
        ({"scoring": "sparse_mixer", "bias": True}, "a sparse mixer has no bias and no groups"),
        ({"scoring": "sparse_mixer", "groups": 2}, "a sparse mixer has no bias and no groups"),
        ({"groups": 3}, "8 experts are no 3 equal groups"),
        ({"groups": 2, "top_groups": 3}, "3 of 2 groups cannot be chosen"),
        ({"groups": 4, "top_groups": 1}, "1 groups of 2 have no 3 experts"),
        ({"groups": 8, "top_groups": 4, "group_score": "top2_sum"}, "no two best ones"),
        ({"chosen": 9}, "9 of 8 experts cannot be chosen"),
    ],
)
def test_what_no_router_does_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        TopKRouter(**{"experts": 8, "chosen": 3, **fields})
