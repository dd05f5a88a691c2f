"""How long a step takes: a model of a few measured curves, for an artifact on a machine.

    seconds = body(T) + extra(R) + chunk(n) * pairs of each sequence with n > 1 new rows
            + token(B) * tokens of all sequences with one new row + host(R)

T rows, R rows with logits, B sequences with one new row. ``body`` holds the token-wise operators,
which cost the same for prefill and decode; ``extra`` what more than one row of logits costs;
``chunk`` and ``token`` are attention, a pair being a row and a token that it sees; ``host`` is
what happens around the engine (scheduling, sampling, text). Curves are linear between knots. What
one curve does not explain is left to the next, so that ``extra`` and ``host`` can be negative.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from optc.runtime.executable import EngineSpec
from optc.runtime.work import visible_pairs


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


@dataclass(frozen=True)
class StepTimes:
    """The curves, in seconds, and what they are for (see the module).

    Attributes:
        windows: Window of each KV group; 0 is full attention.
        shares: Share of the layers that each group has.
        error: Mean relative error of `engine_s` on mixed steps that made none of the curves.
    """

    windows: tuple[int, ...]
    shares: tuple[float, ...]
    body: Curve
    extra: Curve
    chunk: Curve
    token: Curve
    host: Curve
    error: float

    def engine_s(self, sequences: Sequence[Rows], logit_rows: int) -> float:
        """Seconds of the engine for a step."""
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
        """Seconds of a step as it is served, with what happens around the engine."""
        return max(0.0, self.engine_s(sequences, logit_rows) + self.host.at(logit_rows))

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
            KeyError, TypeError: It is something else.
        """
        curves = {
            name: Curve(tuple(data[name]["knots"]), tuple(data[name]["values"]))
            for name in ("body", "extra", "chunk", "token", "host")
        }
        return StepTimes(
            windows=tuple(data["windows"]),
            shares=tuple(data["shares"]),
            error=float(data["error"]),
            **curves,
        )


def group_shares(spec: EngineSpec) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Windows of an engine's KV groups, and the share of the layers that each has."""
    return (
        tuple(group.window for group in spec.groups),
        tuple(len(group.layers) / len(spec.layers) for group in spec.groups),
    )
