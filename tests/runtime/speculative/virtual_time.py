"""A controller at work in virtual time: what steps and drafts really take is made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optc.runtime.speculative.planning.controller import Controller, Draftable, StepTimes
from optc.runtime.speculative.planning.row_costs import RowCosts

#: How many of so many drafts hold, by the ledger's adversary or by chance.
Accepts = Callable[[np.random.Generator, int], int]


def line(per_row: float, unit: float = 1.0) -> RowCosts:
    """A step of one row takes ``unit``, each further one ``per_row`` of it."""
    return RowCosts((1, 101), (unit, unit * (1 + 100 * per_row)))


def by_chance(rate: float) -> Accepts:
    """Each draft holds with the same probability if those before it do."""

    def accepts(rng: np.random.Generator, count: int) -> int:
        held = 0
        while held < count and rng.random() < rate:
            held += 1
        return held

    return accepts


@dataclass
class World:
    """What really happens.

    Attributes:
        accepts: Which drafts hold.
        target: Seconds of a step by its rows.
        draft: Seconds of a draft step by its rows; None is free.
        noise: Relative deviation of times.
        look_s: Seconds of asking what pays.
        making_s: Seconds of making drafts without a draft model.
        held_up: Share of the steps, plain ones too, that take twice as long as a plain one more.
    """

    accepts: Accepts
    target: RowCosts
    draft: RowCosts | None = None
    noise: float = 0.0
    look_s: float = 0.0
    making_s: float = 0.0
    held_up: float = 0.0

    def drafting_s(self, catch_up: list[int], counts: list[int]) -> float:
        """Seconds in which drafts are made."""
        if not any(counts):
            return 0.0
        seconds = self.making_s
        if self.draft is not None:
            seconds += self.draft.at(
                sum(rows for rows, count in zip(catch_up, counts, strict=True) if count)
            )
            for depth in range(2, max(counts) + 1):
                seconds += self.draft.at(sum(count >= depth for count in counts))
        return seconds


@dataclass
class Run:
    """What came of it.

    Attributes:
        seconds: All of it.
        plain_s: What plain decoding of the same tokens takes.
        drafted: All drafts.
    """

    seconds: float = 0.0
    plain_s: float = 0.0
    drafted: int = 0

    @property
    def speed(self) -> float:
        """Against plain decoding."""
        return self.plain_s / self.seconds


def run(
    controller: Controller,
    world: World,
    *,
    sequences: int = 1,
    tokens: int = 2000,
    prompt: int = 1,
    first_id: int = 0,
    seed: int = 0,
) -> Run:
    """Decode ``sequences`` requests of ``tokens`` tokens, all at once."""
    rng = np.random.default_rng(seed)
    done = Run()
    lacking = dict.fromkeys(range(first_id, first_id + sequences), prompt)
    left = dict.fromkeys(lacking, tokens)
    while left:
        running = len(left)
        counts, drafting_s = [0] * running, 0.0
        if controller.ready():
            requests = [Draftable(i, left[i] - 1, lacking[i]) for i in left]
            counts = controller.counts(requests, running)
            counts = [min(n, r.room) for n, r in zip(counts, requests, strict=True)]
            drafting_s = world.look_s + world.drafting_s([lacking[i] for i in left], counts)
        rows = running + sum(counts)
        noise = 1 + world.noise * (rng.random() - 0.5)
        verifying_s = world.target.at(rows) * noise
        late_s = 0.0
        if world.held_up and rng.random() < world.held_up:
            late_s = 2 * world.target.at(running)
        accepted = 0
        for number, count in zip(list(left), counts, strict=True):
            held = world.accepts(rng, count) if count else 0
            if count:
                controller.learn(number, count, held)
            lacking[number] = 1 if count else lacking[number] + 1
            accepted += held
            left[number] -= 1 + held
            if left[number] <= 0:
                del left[number]
                controller.forget(number)
        done.drafted += sum(counts)
        verifying_s += late_s
        done.seconds += verifying_s + drafting_s
        done.plain_s += (world.target.at(running) * noise + late_s) * (1 + accepted / running)
        controller.observe(
            StepTimes(running, rows, verifying_s + drafting_s, drafting_s, sum(counts), accepted)
        )
    return done
