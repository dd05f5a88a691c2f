"""Which configuration a router is, told from what it gives on probes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from optc.passes.canonicalize.experts.routing import (
    Hints,
    Routing,
    Run,
    _choices,
    probes,
    recognize,
)
from tests.support.experts.oracle import route
from tests.support.ir_text import Array

EXPERTS, CHOSEN = 32, 4
GROUPS = ((1, 1, "max"), (4, 2, "top2_sum"), (8, 2, "max"))


def hints(routing: Routing, first: str) -> Hints:
    known = ("softmax", "softmax_after", "sigmoid", "sigmoid_after")
    others = [one for one in known if one != first]
    constants = [one for one in (routing.norm_epsilon, routing.scale) if one not in (0, 1)]
    counts = (CHOSEN, 2, routing.top_groups)
    return Hints(CHOSEN, EXPERTS, (first, *others), constants, counts, routing.corrected)


def run_by_oracle(routing: Routing) -> Run:
    """The oracle as a router, a row's experts in the reverse order."""

    def run(logits: Array, bias: Array) -> tuple[Array, Array]:
        given = bias if routing.corrected else None
        how = {k: v for k, v in routing.attributes().items() if k != "top_k"}
        weights, experts = route(logits, CHOSEN, given, **how)
        return weights[:, ::-1].astype(np.float32), experts[:, ::-1]

    return run


@pytest.mark.parametrize(
    ("scoring", "corrected"),
    [
        *((scoring, one) for scoring in ("softmax", "sigmoid", "softmax_after") for one in (0, 1)),
        ("sigmoid_after", True),
    ],
)
def test_every_configuration_is_told(scoring: str, corrected: bool) -> None:
    weighings = [(0, 0.0)] if scoring == "softmax_after" else [(0, 0.0), (1, 0.0), (1, 1e-20)]
    for (normalize, epsilon), scale, groups in itertools.product(weighings, (1.0, 2.5), GROUPS):
        count, top, score = groups
        one = Routing(
            CHOSEN, scoring, normalize, epsilon, scale, count, top, score, corrected=corrected
        )
        assert recognize(run_by_oracle(one), hints(one, scoring)) == one


def test_hints_say_which_of_two_equal_scorings_it_is() -> None:
    """Softmax, choice and division are choice and softmax: fewer exponentials."""
    one = Routing(CHOSEN, "softmax", normalize=1)
    assert recognize(run_by_oracle(one), hints(one, "softmax_after")) == Routing(
        CHOSEN, "softmax_after"
    )


@pytest.mark.parametrize("constant", [2.5, 0.4])
def test_a_scale_stands_there_or_divides(constant: float) -> None:
    one = Routing(CHOSEN, "softmax", scale=2.5)
    known = replace(hints(one, "softmax"), constants=[7.0, constant, 0.0])
    assert recognize(run_by_oracle(one), known) == one


@pytest.mark.parametrize("constant", [-1e-20, -1.0, 0.0, 1e-3, 2.0])
def test_only_what_is_small_and_positive_is_an_epsilon(constant: float) -> None:
    """It would give the same weights, and be no such operator's attribute."""
    one = Routing(CHOSEN, "softmax", normalize=1)
    known = replace(hints(one, "softmax"), constants=[constant])
    assert recognize(run_by_oracle(one), known) == one
    small = replace(known, constants=[1e-20])
    assert recognize(run_by_oracle(one), small) == replace(one, norm_epsilon=1e-20)


@pytest.mark.parametrize("what", ["weights", "experts", "scale", "bias in the weights"])
def test_anything_else_is_no_router(what: str) -> None:
    one = Routing(CHOSEN, "sigmoid", corrected=True)
    right = run_by_oracle(one)

    def run(logits: Array, bias: Array) -> tuple[Array, Array]:
        weights, experts = right(logits, bias)
        if what == "weights":
            return weights**2, experts
        if what == "experts":
            return weights, (experts + 1) % EXPERTS
        return (weights * 1.7, experts) if what == "scale" else (weights + bias[experts], experts)

    assert recognize(run, hints(replace(one, scale=2.5), "sigmoid")) is None


def test_probes_have_no_ties() -> None:
    for logits, bias in probes(512):
        assert all(len(np.unique(row)) == 512 for row in logits)
        assert len(np.unique(bias)) == 512
        assert logits.min() < -45 - 2


def _run(routing: Routing, logits: Array, bias: Array) -> tuple[Array, Array]:
    chosen = routing.choose(logits, bias)
    return routing.weigh(logits, chosen), chosen


@pytest.mark.parametrize("experts", [4, 6, 8])
@pytest.mark.parametrize("biased", [False, True])
def test_few_experts_are_told_by_what_they_choose(experts: int, biased: bool) -> None:
    """With few of them, or a bias that outweighs scores, many configurations mostly agree."""
    known = Hints(2, experts, ("softmax", "sigmoid"), (), (1, 2, 3), biased)
    rng = np.random.default_rng(5)
    sizes = rng.choice([0.05, 0.3, 1, 2], (1000, 1))
    logits = (rng.standard_normal((1000, experts)) * sizes).astype(np.float32)
    bias = (rng.standard_normal(experts) * 0.3).astype(np.float32)
    for one in _choices(known):
        if one.groups > 1 and one.top_groups * experts // one.groups < 2:
            continue  # chooses experts of no group
        found = recognize(partial(_run, one), known)
        assert found is not None
        pairs = zip(found.choose(logits, bias), one.choose(logits, bias), strict=True)
        apart = [i for i, (a, b) in enumerate(pairs) if set(a) != set(b)]
        assert len(apart) < 5, (found, one)
