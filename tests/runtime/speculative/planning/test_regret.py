"""Speculation never makes decoding more than two percent slower, whatever is accepted.

In virtual time the measured costs are right and the rest is hostile: drafts that hold just until
they are relied on, requests that end at once, texts that change, steps that take longer than
others, looking and drafting that take time as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.speculative.planning.break_even import BreakEven, making_time
from optc.runtime.speculative.planning.controller import Draftable
from optc.runtime.speculative.planning.ledger import AT_FIRST
from optc.runtime.speculative.planning.plan_drafts import Costs, DraftPlan
from tests.runtime.speculative.virtual_time import Accepts, Run, World, by_chance, line, run

#: What the ledger proves, and a rest for estimates and for what happens once.
BOUND = 1.02


def betrays(trusted: int) -> Accepts:
    """Few drafts all hold, many are all wrong."""
    return lambda _, count: count if count <= trusted else 0


def turns(period: int) -> Accepts:
    """So many verifications in which all hold, so many in which none does."""
    seen = iter(range(10**9))
    return lambda _, count: count if next(seen) // period % 2 else 0


class Reckless:
    """Drafts all that it can pay for, whatever came of it (a `Planner`)."""

    def plan(
        self, requests: Sequence[Draftable], sequences: int, costs: Costs, budget: float
    ) -> DraftPlan:
        counts = [0] * len(requests)
        for index in range(len(requests)):
            for count in range(1, 17):
                tried = [*counts[:index], count, *counts[index + 1 :]]
                extra = costs.verifying(sequences + sum(tried), sequences)
                extra += costs.making - costs.target.at(sequences)
                extra += making_time(costs, requests, tried) * costs.draft_factor
                if extra > budget:
                    break
                counts, taken = tried, extra
        return DraftPlan(counts, 0.0, taken if any(counts) else 0.0)

    def learn(self, request_id: int, drafted: int, accepted: int) -> None:
        """Nothing is learned."""

    def forget(self, request_id: int) -> None:
        """Nothing is known."""


@st.composite
def adversaries(draw: st.DrawFn) -> Accepts:
    """One who accepts what hurts."""
    kind = draw(st.sampled_from(["chance", "betrays", "turns"]))
    if kind == "chance":
        return by_chance(draw(st.floats(0, 1)))
    if kind == "betrays":
        return betrays(draw(st.integers(0, 8)))
    return turns(draw(st.integers(1, 40)))


WORLDS: dict[str, st.SearchStrategy[Any]] = {
    "accepts": adversaries(),
    "per_row": st.sampled_from([0.005, 0.02, 0.1, 0.5, 1.0]),
    "draft_s": st.sampled_from([None, 0.02, 0.2, 2.0]),
    "sequences": st.sampled_from([1, 3, 16]),
    "prompt": st.sampled_from([1, 200]),
    "lengths": st.lists(st.integers(1, 600), min_size=1, max_size=12),
    "noise": st.sampled_from([0.0, 0.2]),
    "look_s": st.sampled_from([0.0, 0.002, 0.05]),
    "making_s": st.sampled_from([0.0, 0.05, 0.5]),
    "reckless": st.booleans(),
    "seed": st.integers(0, 2**32 - 1),
}


def at_most_two_percent_are_lost(
    accepts: Accepts,
    per_row: float,
    draft_s: float | None,
    sequences: int,
    prompt: int,
    lengths: list[int],
    noise: float,
    look_s: float,
    making_s: float,
    reckless: bool,
    seed: int,
) -> None:
    draft = None if draft_s is None else line(0.05, draft_s)
    world = World(accepts, line(per_row), draft, noise, look_s, making_s)
    controller = BreakEven(Costs(world.target, draft), planner=Reckless() if reckless else None)
    total = Run()
    for number, tokens in enumerate(lengths):
        first_id = number * sequences
        part = run(
            controller,
            world,
            sequences=sequences,
            tokens=tokens,
            prompt=prompt,
            first_id=first_id,
            seed=seed + number,
        )
        total.seconds += part.seconds
        total.plain_s += part.plain_s
    # what is learned only once: how long it takes to look and to make drafts, and what they hold
    once = look_s + making_s + AT_FIRST * world.target.at(sequences)
    assert total.seconds <= BOUND * total.plain_s + once


@settings(max_examples=40, deadline=None, derandomize=True)
@given(**WORLDS)
def test_at_most_two_percent_are_lost(**drawn: Any) -> None:
    at_most_two_percent_are_lost(**drawn)


@pytest.mark.long
@settings(max_examples=150, deadline=None, derandomize=True)
@given(**WORLDS)
def test_at_most_two_percent_are_lost_in_more_examples(**drawn: Any) -> None:
    at_most_two_percent_are_lost(**drawn)
