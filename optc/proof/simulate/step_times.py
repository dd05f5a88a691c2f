"""The time of a step: a model of a few measured curves, for an artifact on a machine.

    engine  = body(T) + extra(R) + chunk(n) * pairs of each sequence with n > 1 new rows
              + token(B) * tokens of all sequences with one new row
    seconds = engine * service(T) + arrival * requests that begin
              + host(R) + prompt * sequences with n > 1

T rows, R rows with logits, B sequences with one new row. ``body`` holds the token-wise operators,
which cost the same for prefill and decode; ``extra`` what more than one row of logits costs;
``chunk`` and ``token`` are attention, a pair being a row and a token that it sees. These are steps
as one repeats them on an idle machine. ``service`` is how much longer they take in service,
``arrival`` how long a thread that hands a request in holds them up, ``host`` and ``prompt`` what
happens around the engine (scheduling, sampling, text). Curves are linear between knots. What one
curve does not explain is left to the next, so that ``extra`` can be negative.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import msgspec

from optc.runtime.executable.executable import StepInterface
from optc.runtime.metrics.step_workload import visible_pairs


class Rows(NamedTuple):
    """One sequence of a step: its new rows, and its tokens after them."""

    new: int
    length: int


@dataclass(frozen=True)
class Curve:
    """A function that is linear between knots and constant beyond them.

    Attributes:
        knots: Ascending.
        values: One for each.
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, x: float) -> float:
        """The value at ``x``."""
        if x <= self.knots[0]:
            return self.values[0]
        if x >= self.knots[-1]:
            return self.values[-1]
        right = bisect_right(self.knots, x)
        x0, x1 = self.knots[right - 1], self.knots[right]
        y0, y1 = self.values[right - 1], self.values[right]
        return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


class Spread(NamedTuple):
    """The spread of steps' times around the expected: other programs hold up some, and by much.

    Attributes:
        longest_s: Expected seconds up to which it holds.
        factors: Evenly spaced quantiles of real over expected seconds, of mean 1.
    """

    longest_s: float
    factors: tuple[float, ...]


@dataclass(frozen=True)
class StepTimes:
    """The curves, in seconds, and what they are for (see the module).

    Attributes:
        windows: Window of each KV group; 0 is full attention.
        shares: Share of the layers that each group has.
        error: Mean relative error of `engine_s` on mixed steps that made none of the curves.
        spread: Of steps in service, by their length, shortest first; none is none.
        prompt_s, arrival_s: As above.
        submit_s: What it takes to hand a request in while others are served.
        reach_s: From when a request is due until an idle engine begins with it.
    """

    windows: tuple[int, ...]
    shares: tuple[float, ...]
    body: Curve
    extra: Curve
    chunk: Curve
    token: Curve
    service: Curve
    host: Curve
    error: float
    spread: tuple[Spread, ...] = ()
    prompt_s: float = 0.0
    arrival_s: float = 0.0
    submit_s: float = 0.0
    reach_s: float = 0.0

    def engine_s(self, sequences: Sequence[Rows], logit_rows: int) -> float:
        """Seconds of the engine for a step on its own."""
        rows = pairs_s = single = tokens = 0.0
        for new, length in sequences:
            rows += new
            seen = self.pairs(new, length)
            if new > 1:
                pairs_s += self.chunk.at(new) * seen
            else:
                single += 1
                tokens += seen
        token_s = self.token.at(single) * tokens if single else 0.0
        return self.body.at(rows) + self.extra.at(logit_rows) + pairs_s + token_s

    def step_s(self, sequences: Sequence[Rows], logit_rows: int) -> float:
        """Expected seconds of a step as it is served, with what happens around the engine."""
        rows = prompts = begun = 0
        for new, length in sequences:
            rows += new
            prompts += new > 1
            begun += new == length
        engine_s = self.engine_s(sequences, logit_rows) * self.service.at(rows)
        around_s = self.host.at(logit_rows) + self.prompt_s * prompts + self.arrival_s * begun
        return max(0.0, engine_s + around_s)

    def drawn_s(self, expected_s: float, chance: float) -> float:
        """Seconds of a step of which `step_s` expects ``expected_s``, by a number that is drawn
        evenly from [0, 1)."""
        for spread in self.spread:
            if expected_s <= spread.longest_s or spread is self.spread[-1]:
                return expected_s * spread.factors[int(chance * len(spread.factors))]
        return expected_s

    def slower(self, factor: float) -> StepTimes:
        """The same steps on a machine on which all takes ``factor`` times as long."""
        host = Curve(self.host.knots, tuple(factor * value for value in self.host.values))
        service = Curve(self.service.knots, tuple(factor * v for v in self.service.values))
        return replace(
            self,
            host=host,
            service=service,
            prompt_s=factor * self.prompt_s,
            arrival_s=factor * self.arrival_s,
            submit_s=factor * self.submit_s,
            reach_s=factor * self.reach_s,
        )

    def pairs(self, new: int, length: int) -> float:
        """Pairs of the last ``new`` rows of ``length`` and what they see, a mean over layers."""
        return sum(
            share * visible_pairs(new, length, window)
            for window, share in zip(self.windows, self.shares, strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` takes."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> StepTimes:
        """The step times that `to_json` turned into JSON.

        Raises:
            msgspec.ValidationError: It is something else.
        """
        return msgspec.convert(data, StepTimes)


def group_shares(spec: StepInterface) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Windows of an engine's KV groups, and the share of the layers that each has."""
    return (
        tuple(group.window for group in spec.groups),
        tuple(len(group.layers) / len(spec.layers) for group in spec.groups),
    )
