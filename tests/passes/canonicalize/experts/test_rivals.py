"""Sparse mixers: the weights, and that every other reading of the threshold is told from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optc.passes.canonicalize.experts.rivals import edge_probes, weights_among_rivals
from optc.passes.canonicalize.experts.routing import Hints, Routing, recognize
from tests.support.experts.oracle import route
from tests.support.ir_text import Array

EXPERTS, THRESHOLD = 16, 0.02
MIXER = Routing(2, "sparse_mixer", threshold=THRESHOLD)
SCORINGS = ("softmax", "softmax_after", "sigmoid", "sparse_mixer")
HINTS = Hints(2, EXPERTS, SCORINGS, (2.5,), (2,), biased=False, thresholds=(0.01, THRESHOLD, 3.0))


def mixed(logits: Array, variant: str) -> tuple[Array, Array]:
    """A sparse mixer in float32, as published but for the ``variant``."""
    experts = np.argsort(-logits, axis=-1, kind="stable")[:, :2]
    weights, left = [], logits
    for turn in range(2):
        own = np.take_along_axis(logits, experts[:, turn : turn + 1], -1)
        size = {
            "rival's magnitude": np.abs(logits),
            "own magnitude": np.abs(own) + 0 * logits,
            "no magnitude": np.maximum(logits, own),
            "absolute gap": np.ones_like(logits),
        }.get(variant, np.maximum(np.abs(logits), own))
        limit = THRESHOLD * (0.999 if variant == "a little less" else 1)
        far = (own - logits) / size > np.float32(limit)
        if variant == "first alone" and turn:
            far = np.zeros_like(far)
        powers = np.where(far, 0, np.exp(left - own))
        if variant == "chosen alone":
            powers = np.where(logits >= np.sort(logits)[:, -2:-1], powers, 0)
        weights.append(1 / powers.sum(-1))
        if variant != "nobody leaves":
            left = np.where(np.arange(EXPERTS) == experts[:, turn : turn + 1], -np.inf, left)
    return np.stack(weights, -1).astype(np.float32), experts


def found(variant: str, hints: Hints = HINTS) -> Routing | None:
    return recognize(lambda logits, _: mixed(logits, variant), hints)


def test_the_published_one_is_known() -> None:
    assert found("") == MIXER


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_weights_may_be_normalized_and_scaled(scale: float) -> None:
    def run(logits: Array, _: Array) -> tuple[Array, Array]:
        weights, experts = mixed(logits, "")
        return weights / weights.sum(-1, keepdims=True) * np.float32(scale), experts

    assert recognize(run, HINTS) == replace(MIXER, normalize=1, scale=scale)


@pytest.mark.parametrize(
    "variant",
    [
        *("rival's magnitude", "own magnitude", "no magnitude", "absolute gap", "a little less"),
        *("first alone", "chosen alone", "nobody leaves"),
    ],
)
def test_every_variant_is_told(variant: str) -> None:
    assert found(variant) is None


@pytest.mark.parametrize("thresholds", [(), (0.01, 3.0), (-THRESHOLD,)])
def test_a_threshold_is_a_constant_of_the_graph(thresholds: tuple[float, ...]) -> None:
    assert found("", replace(HINTS, thresholds=thresholds)) is None


@pytest.mark.parametrize("threshold", [0.02, 0.3])
@pytest.mark.parametrize("experts", [3, 16])
def test_weights_at_edges_are_those_of_float64(experts: int, threshold: float) -> None:
    logits = edge_probes(experts, 2, threshold)
    want, chosen = route(logits, 2, scoring="sparse_mixer", threshold=threshold)
    for order in (1, -1):
        got = weights_among_rivals(logits, chosen[:, ::order], threshold)[:, ::order]
        np.testing.assert_allclose(got, want, rtol=1e-5)
