"""Tokens a pass by both engines' words, against a decoder that drafts; costs and the prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from optc.backend import EngineBuild, SharedWeights
from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.drafts.choose_layers import MOST_DRAFTS, ROW_COST
from optc.compiling.drafts.predicted_gain import (
    Agreement,
    GreedyTexts,
    Prediction,
    draft_cost,
    predict_gain,
    tokens_per_pass,
    verify_costs,
)
from optc.compiling.resolving.engines import EngineTarget
from optc.proof.roofline.costs import KernelCost, StepCosts
from optc.runtime.executable.executable import Float32
from optc.system.hardware.target import parse_target
from tests.artifact.toy import toy_engine
from tests.runtime.support.toy import (
    ToyExecutable,
    ToyModel,
    generate_naively,
    naive_layers,
    toy_spec,
)
from tests.support.stub import StubBackend

SPEC = toy_spec(max_context=40, max_rows=7)
WINDOWS = np.random.default_rng(3).integers(0, SPEC.vocab_size, (5, 24)).astype(np.int32)


def passes_of(agreement: Agreement, drafts: int) -> int:
    """Steps of a decoder that drafts, token by token."""
    steps = 0
    for row in agreement:
        said = 1  # by the prefill
        while said < len(row):
            steps += 1
            accepted = 0
            while accepted < drafts and said + accepted < len(row) and row[said + accepted]:
                accepted += 1
            said += accepted + 1
    return steps


@pytest.mark.parametrize("drafts", [0, 1, 3, 8, 30])
@pytest.mark.parametrize("share", [0.0, 0.6, 0.95, 1.0])
def test_tokens_a_pass_are_those_of_a_decoder_that_drafts(drafts: int, share: float) -> None:
    agreement = np.random.default_rng(int(share * 9)).random((7, 23)) < share
    assert tokens_per_pass(agreement, drafts) == 7 * 22 / passes_of(agreement, drafts)


def test_texts_and_agreement_are_those_of_the_models() -> None:
    texts = GreedyTexts.of(ToyExecutable(SPEC), WINDOWS)
    assert (texts.prompt, texts.ids.shape) == (11, (5, 23))
    model, other = ToyModel.seeded(SPEC), ToyModel.seeded(SPEC, 1)
    for ids in texts.ids.tolist():
        assert ids[11:] == generate_naively(model, ids[:11], 12)
    expected = [
        [generate_naively(other, ids[:place], 1) == [ids[place]] for place in range(11, 23)]
        for ids in texts.ids.tolist()
    ]
    np.testing.assert_array_equal(texts.named_by(ToyExecutable(SPEC, 1)), expected)
    assert texts.named_by(ToyExecutable(SPEC)).all()


def logits_behind(target: ToyModel, draft: ToyModel, tokens: list[int]) -> Float32:
    """Logits [V] of the draft after the last token, which reads the target's keys and values of the
    tokens before and its own of the last."""
    mine = draft.embed(tokens[-1], len(tokens) - 1)
    layers = zip(target.windows, naive_layers(target, tokens), strict=False)
    for layer, (window, theirs) in enumerate(layers):
        rows = [target.project(layer, x) for x in theirs]
        query, key, value = draft.project(layer, mine)
        first = max(0, len(rows) - window) if window else 0
        keys = [row[1] for row in rows[first:-1]] + [key]
        values = [row[2] for row in rows[first:-1]] + [value]
        mine = draft.attend(mine, query, np.array(keys), np.array(values))
    return draft.logits(mine)


def test_a_draft_on_the_targets_pools_reads_the_targets_keys_and_values() -> None:
    shared = structs.replace(SPEC, shared_kv=tuple(range(len(SPEC.layers))))
    target, draft = ToyExecutable(SPEC), ToyExecutable(shared, 1)
    texts = GreedyTexts.of(target, WINDOWS)
    found = texts.named_by(draft, target)
    model, other = ToyModel.seeded(SPEC), ToyModel.seeded(SPEC, 1)
    expected = [
        [
            int(logits_behind(model, other, ids[:place]).argmax()) == ids[place]
            for place in range(texts.prompt, len(ids))
        ]
        for ids in texts.ids.tolist()
    ]
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(found, texts.named_by(ToyExecutable(SPEC, 1)))
    assert texts.named_by(ToyExecutable(shared), target).all()


def test_short_windows_and_few_give_what_there_is() -> None:
    texts = GreedyTexts.of(ToyExecutable(SPEC), WINDOWS[:1, :2])
    assert (texts.prompt, texts.ids.shape) == (1, (1, 3))
    many = np.tile(WINDOWS, (9, 1))
    assert len(GreedyTexts.of(ToyExecutable(SPEC), many).ids) == 16


@pytest.mark.parametrize("cost", [0.05, 0.4, 1.0])
def test_the_prediction_is_the_best_of_all_numbers_of_drafts(cost: float) -> None:
    agreement = np.random.default_rng(1).random((9, 40)) < 0.8
    verifying = [1 + n * (ROW_COST + 0.01 * n) for n in range(9)]
    found = predict_gain(agreement, cost, verifying)
    gains = {n: tokens_per_pass(agreement, n) / (verifying[n] + n * cost) for n in range(1, 9)}
    assert found.gain == max(gains.values()) == gains[found.drafts]
    assert found.tokens_per_pass == tokens_per_pass(agreement, found.drafts)
    assert (found.acceptance, found.cost, found.tokens) == (agreement.mean(), cost, 360)


@pytest.mark.parametrize(("gain", "pays"), [(1.049, False), (1.05, True)])
def test_less_than_a_twentieth_does_not_pay(gain: float, pays: bool) -> None:
    found = Prediction(0.5, 0.3, 2, 1.7, gain, 100)
    assert found.pays is pays
    assert str(found).startswith(f"{gain:.2f} of plain decoding's speed (2 drafts a step, 50% of")


class Costed(StubBackend):
    """States as many bytes a row as an engine's data say, and bytes of each expert."""

    def __init__(self) -> None:
        super().__init__("costed")

    def step_costs(self, data: dict[str, Any]) -> StepCosts:
        terms = {"1": data["bytes"], "T": 1.0, **data.get("more", {})}
        return StepCosts("int8", {"k": KernelCost(1, "int8", terms, {})})

    def open_meter(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def build_meter(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def open_profiler(self, *arguments: Any) -> Any:
        raise NotImplementedError


def built(backend: StubBackend, name: str, weights: int, **data: Any) -> BuiltEngine:
    target = parse_target("native")
    entry = structs.replace(toy_engine(name, target), interface=SPEC, data=data)
    build = EngineBuild((), SPEC, {}, data, weight_bytes=weights)
    shared = SharedWeights(f"../{name}", data)
    return BuiltEngine(EngineTarget(name, backend, target), entry, build, shared, 0.0)


def test_a_draft_costs_its_share_of_what_steps_read() -> None:
    backend = Costed()
    target, draft = built(backend, "t", 0, bytes=99.0), built(backend, "d", 0, bytes=24.0)
    assert draft_cost(target, draft, [target, draft]) == 0.25


def test_where_a_backend_states_no_costs_it_is_the_share_of_weights() -> None:
    backend = StubBackend()
    first, draft = built(backend, "t", 400), built(backend, "d", 100)
    reads = replace(built(backend, "u", 0), weights=first.weights)
    assert draft_cost(reads, draft, [first, reads, draft]) == 0.25


def distinct_experts(rows: int, chosen: int, count: int) -> float:
    """How many of a layer's experts are read for rows that choose at random, on average."""
    scores = np.random.default_rng(rows).random((4000, rows, count))
    taken = np.zeros((4000, count), bool)
    for row in range(rows):
        np.put_along_axis(taken, scores[:, row].argsort(1)[:, :chosen], True, axis=1)
    return float(taken.sum(1).mean())


def test_more_rows_read_the_experts_that_a_simulation_reads() -> None:
    target = built(Costed(), "t", 0, bytes=300.0, more={"T:2of8": 50.0, "T:1of4": 20.0})
    read = [
        300 + n + 50 * distinct_experts(n, 2, 8) + 20 * distinct_experts(n, 1, 4)
        for n in range(1, MOST_DRAFTS + 2)
    ]
    expected = [each / read[0] + n * ROW_COST for n, each in enumerate(read)]
    assert expected[8] > 1.7, "most experts are read"
    assert verify_costs(target) == pytest.approx(expected, rel=0.01)


def test_rows_of_a_dense_target_and_of_an_unknown_one_cost_the_same_bytes() -> None:
    plain = [1 + n * ROW_COST for n in range(MOST_DRAFTS + 1)]
    dense = built(Costed(), "t", 0, bytes=1e6)
    assert verify_costs(dense) == pytest.approx(plain, abs=1e-5)
    assert verify_costs(built(StubBackend(), "t", 400)) == pytest.approx(plain)


def test_experts_that_rows_do_not_share_make_a_draft_pay_less() -> None:
    agreement = np.random.default_rng(2).random((9, 40)) < 0.7
    dense = built(Costed(), "t", 0, bytes=400.0)
    mixed = built(Costed(), "t", 0, bytes=300.0, more={"T:2of8": 50.0})
    gains = [predict_gain(agreement, 0.1, verify_costs(one)) for one in (dense, mixed)]
    assert gains[1].gain < 0.85 * gains[0].gain
    assert gains[1].drafts < gains[0].drafts
