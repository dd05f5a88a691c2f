"""Medusa: trees of the likeliest guesses, how many pay, and that the text stays the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from optc.errors import InputError
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import (
    Float32,
    HeadedExecutable,
    Int32,
    StepBatch,
    StepInterface,
)
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafters.medusa import MedusaProposer, TreePlanner
from optc.runtime.speculative.drafters.medusa_tree import likeliest, shape_of
from optc.runtime.speculative.drafting import Drafting
from optc.runtime.speculative.planning.break_even import BreakEven
from optc.runtime.speculative.planning.controller import Controller, Draftable, Fixed
from optc.runtime.speculative.planning.plan_drafts import MARGIN, Costs
from optc.runtime.speculative.planning.row_costs import RowCosts
from optc.runtime.speculative.proposer import DraftOutcome, DraftRequest
from optc.runtime.speculative.speculator import DraftSource, Speculator
from tests.runtime.speculative.test_speculator import request
from tests.runtime.speculative.virtual_time import World, line
from tests.runtime.speculative.virtual_time import run as run_in_virtual_time
from tests.runtime.support.toy import VOCAB, ToyExecutable, naive_logits, toy_spec

RATES = ((0.6, 0.2, 0.1), (0.5, 0.1), (0.3, 0.2))


def test_the_likeliest_nodes_come_first() -> None:
    nodes = likeliest(RATES, 6)
    assert [path for path, _ in nodes] == [(0,), (0, 0), (1,), (1, 0), (2,), (0, 0, 0)]
    chances = dict(likeliest(RATES, 99))
    assert len(chances) == 3 + 3 * 2 + 3 * 2 * 2, "all there are"
    for path, chance in chances.items():
        want = np.prod([RATES[depth][rank] for depth, rank in enumerate(path)])
        assert chance == pytest.approx(want)


@settings(derandomize=True, deadline=None)
@given(
    rates=st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=4),
    most=st.integers(1, 30),
)
def test_trees_are_closed_and_take_the_best(rates: list[list[float]], most: int) -> None:
    rates = [sorted(row, reverse=True) for row in rates]
    nodes = likeliest(rates, most)
    paths = {path for path, _ in nodes}
    assert len(paths) == len(nodes) <= most
    chances = [chance for _, chance in nodes]
    assert chances == sorted(chances, reverse=True)
    assert all(path[:-1] in paths for path in paths if len(path) > 1)
    shape = shape_of([path for path, _ in nodes])
    for index, parent in enumerate(shape.parents):
        assert parent < index
        assert shape.depths[index] == (0 if parent < 0 else shape.depths[parent] + 1)
    assert shape.ranks[0] == 0, "the likeliest path comes first"


class HeadedToy(ToyExecutable):
    """Its heads know the greedy continuation, and say it with the k-th rank for head k."""

    def __init__(self, spec: StepInterface, seed: int = 0) -> None:
        super().__init__(replace(spec, accept_rates=RATES), seed)
        self.paths: list[list[int]] = []
        self.asked: list[int] = []

    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        self.last = batch, logits.copy()
        return logits

    def guess(self, rows: Int32) -> Float32:
        """Behind the token that a row's own logits give; needs one sequence's whole text."""
        self.asked.append(len(rows))
        guesses = np.zeros((len(rows), len(RATES), VOCAB), np.float32)
        for index, row in enumerate(rows):
            text = [*self.text[: int(self.last[0].positions[self.last[0].logit_rows[row]]) + 1]]
            text.append(int(np.argmax(self.last[1][row])))
            for head in range(len(RATES)):
                token = int(np.argmax(naive_logits(self.model, text)))
                guesses[index, head, token] = 1.0
                guesses[index, head, (token + 1) % VOCAB] = 2.0 if head == 1 else 0.0
                text.append(token)
        return guesses

    text: list[int]


def run(temperature: float, controller: Controller | None) -> tuple[list[int], Core, HeadedToy]:
    executable = HeadedToy(toy_spec((0, 5), max_logit_rows=20, tree=True))
    assert isinstance(executable, HeadedExecutable)
    speculator = None
    if controller is not None:
        proposer = MedusaProposer(executable, 8)
        source = DraftSource(proposer, controller, learner=proposer, note_rows=proposer.note_rows)
        speculator = Speculator([source])
    core = Core(
        executable,
        KVPlan(4, (40, 40), 0, 64),
        ServeSettings(token_budget=16),
        speculator=speculator,
    )
    params = SamplingParams(temperature=temperature, max_tokens=30)
    one = core.add(CompletionInput(np.array([3, 1, 4], np.int32), params, seed=7))
    while core.has_work:
        executable.text = one.tokens.tolist() + [0] * 20
        core.step()
        core.scheduler.check_integrity()
    return one.output.tolist(), core, executable


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_plain_decoding(temperature: float) -> None:
    expected, _, _ = run(temperature, None)
    got, core, executable = run(temperature, Fixed(8))
    assert got == expected
    assert set(executable.asked) == {1}, "one row a request, whatever its tree"
    if temperature == 0:
        assert core.metrics().accepted_tokens >= 12
        trees = [b.tree_parent for b in executable.batches if b.tree_parent is not None]
        assert any((np.diff(tree) != 1).any() for tree in trees)


def test_guesses_become_a_tree() -> None:
    executable = HeadedToy(toy_spec(tree=True))
    executable.guess = lambda rows: np.tile(  # type: ignore[method-assign]
        np.array([[5, 9, 7, 0], [1, 2, 0, 0], [0, 0, 0, 3]], np.float32), (len(rows), 1, 1)
    )
    proposer = MedusaProposer(executable, 6)
    one, two = request(1), request(2)
    assert [d.tokens for d in proposer.propose([DraftRequest(one, 6)])] == [[]], "not drawn yet"
    proposer.note_rows({2: 0})
    first, second = proposer.propose([DraftRequest(one, 6), DraftRequest(two, 4)])
    assert first.tokens == []
    paths = [path for path, _ in likeliest(RATES, 4)]
    shape = shape_of(paths)
    order = [[1, 2, 0], [1, 0], [3, 2]]
    want = [order[depth][rank] for rank, depth in zip(shape.ranks, shape.depths, strict=True)]
    assert second.tokens == want
    assert second.parents == shape.parents


def test_only_what_pays_is_drafted() -> None:
    proposer = MedusaProposer(HeadedToy(toy_spec(tree=True)), 8)
    assert proposer.gains[0] == pytest.approx(0.6)
    planner = TreePlanner(proposer)
    costs = Costs(RowCosts((1, 101), (1.0, 11.0)))
    one = [Draftable(1, 20)]
    several = [Draftable(index, 30) for index in range(4)]
    few = planner.plan(several, 4, costs, 9.0).counts
    many = planner.plan(one, 1, costs, 9.0).counts[0]
    assert 0 < few[0] < many <= 8, "a row costs a tenth of a step, of each sequence"
    assert few == [few[0]] * 4
    assert planner.plan(one, 1, costs, 0.15).counts == [1], "no more than may be lost"
    dear = costs._replace(making=9.0)
    assert planner.plan(one, 1, dear, 99.0).counts == [0], "making takes longer than drafts win"
    for _ in range(300):
        proposer.learn(request(1), DraftOutcome(8, (), [0] * 9))
    assert proposer.gains[0] < 0.02
    assert planner.plan(one, 1, costs, 9.0).counts == [0]


@pytest.mark.parametrize("limit", [1, 7, 8, 9])
def test_as_many_guesses_as_are_wanted(limit: int) -> None:
    executable = HeadedToy(toy_spec(tree=True))
    executable.guess = lambda rows: np.eye(3, VOCAB, dtype=np.float32)[None]  # type: ignore[method-assign]
    proposer = MedusaProposer(executable, 8)
    proposer.note_rows({1: 0})
    (made,) = proposer.propose([DraftRequest(request(1), limit)])
    assert len(made.tokens) == min(limit, 8)


def test_what_came_of_trees_is_weighed_against_what_was_promised() -> None:
    proposer = MedusaProposer(HeadedToy(toy_spec(tree=True)), 8)
    promised = proposer.gains
    proposer.learn(request(1), DraftOutcome(3, (0, 1), [0] * 4))
    expected, accepted = 4 * 0.98 + sum(promised[:3]), 4 * 0.98 + 2
    assert proposer.gains == pytest.approx([gain * accepted / expected for gain in promised])
    proposer.learn(request(1), DraftOutcome(1, (), [0] * 2))
    expected, accepted = expected * 0.98 + promised[0], accepted * 0.98
    assert proposer.gains == pytest.approx([gain * accepted / expected for gain in promised])


def test_time_that_heads_take_is_learned_and_charged() -> None:
    """Heads that take half of a step win nothing; they are tried rarely."""
    proposer = MedusaProposer(HeadedToy(toy_spec(tree=True)), 8)
    controller = BreakEven(Costs(line(0.05)), planner=TreePlanner(proposer))
    world = World(lambda _, count: 0, line(0.05), making_s=0.5)
    slow = run_in_virtual_time(controller, world, tokens=2000)
    assert 0 < slow.drafted < 80
    assert slow.speed > 0.98


def test_an_artifact_without_heads_says_so() -> None:
    with pytest.raises(InputError, match=r"no Medusa heads.*compile it with --medusa FOLDER"):
        Engine(lambda: ToyExecutable(toy_spec()), drafting=Drafting(("medusa",)))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    sequences=st.integers(1, 5),
    drafted=st.integers(1, 5),
    row=st.floats(0.01, 0.6),
    making=st.floats(0, 0.5),
    budget=st.floats(0.05, 3),
)
def test_no_other_tree_is_faster(
    sequences: int, drafted: int, row: float, making: float, budget: float
) -> None:
    """Against trying all sizes of a tree."""
    drafted = min(drafted, sequences)
    proposer = MedusaProposer(HeadedToy(toy_spec(tree=True)), 8)
    costs = Costs(RowCosts((1, 101), (1.0, 1 + 100 * row)), making=making)
    requests = [Draftable(index, 20) for index in range(drafted)]
    plan = TreePlanner(proposer).plan(requests, sequences, costs, budget)
    plain = costs.target.at(sequences)

    def extra(nodes: int) -> float:
        return costs.verifying(sequences + nodes * drafted, sequences) + making - plain

    def gain(nodes: int) -> float:
        tokens = sequences + drafted * sum(proposer.gains[:nodes])
        return tokens / sequences * plain / (plain + extra(nodes)) - 1

    sizes = [nodes for nodes in range(1, 9) if extra(nodes) <= budget]
    best = max(map(gain, sizes), default=0.0)
    (nodes,) = set(plan.counts)
    assert len(plan.counts) == drafted
    if nodes:
        assert plan.gain == pytest.approx(gain(nodes)) == pytest.approx(best)
        assert plan.gain > MARGIN
        assert plan.extra == pytest.approx(extra(nodes))
        assert nodes in sizes
    else:
        assert best <= MARGIN + 1e-9
        assert (plan.gain, plan.extra) == (0.0, 0.0)


def test_nothing_is_kept_of_a_request() -> None:
    proposer = MedusaProposer(HeadedToy(toy_spec(tree=True)), 8)
    before = proposer.gains
    proposer.forget(request(1))
    TreePlanner(proposer).forget(1)
    assert proposer.gains == before
