"""A sequential test of gates: can one still hold after some of its windows?

Windows are measured in a random order that is drawn before anything is known of them, so that
they are a sample without replacement. A gate whose bound is on a mean of figures that are never
negative holds if their sum over all W windows is at most W times the bound m. After t - 1 windows
of sum s the rest has a mean of at most m_t = (W m - s) / (W - t + 1) where the gate holds. Two
things end it:

- m_t is negative: the rest cannot take back what was lost. That is certain.
- The capital of a gambler who bets on "too large", K_t = prod(1 + c (x_t / m_t - 1)), reaches
  1 / `FALSE_END`. It is a nonnegative supermartingale where the gate holds, so that by Ville's
  inequality it ever does so with a probability of at most `FALSE_END`, however often one looks.
  The mean of several capitals, of other shares c, is such a capital too. (Waudby-Smith and Ramdas,
  "Estimating means of bounded random variables by betting", JRSS B 86, 2024, and "Confidence
  sequences for sampling without replacement", NeurIPS 2020. The tests need no bound above, and
  say nothing of how values depend on each other within a window.)

A gate that is never ended is judged on all windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from optc.proof.gates.divergence import RowScores
from optc.runtime.executable.executable import Int32

#: Most often, of gates that would hold on all windows, one may be ended.
FALSE_END = 1e-4
#: Shares of the capital that are bet.
_SHARES = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
#: Rounding of sums that are compared with what they may be.
_ROUNDING = 1e-9

#: The figure of a window.
_Figure = Callable[[RowScores], float]


@dataclass(frozen=True)
class EarlyEnd:
    """A gate that cannot hold any more.

    Attributes:
        gate: Its name.
        windows: How many were measured.
        of: How many there are.
        certain: No other windows could change it; else it holds with a probability of at most
            `FALSE_END`.
    """

    gate: str
    windows: int
    of: int
    certain: bool

    def __str__(self) -> str:
        """The reason why the gate has failed."""
        how = "cannot hold any more" if self.certain else f"holds with p <= {FALSE_END:g}"
        return f"ended early after {self.windows} of {self.of} windows: it {how}"


class MeanTest:
    """A test: can a mean of figures that are never negative still be at most a bound?

    Args:
        bound: m, at most this; below 0 nothing holds.
        windows: W.
    """

    def __init__(self, bound: float, windows: int) -> None:
        self._allowed = bound * windows
        self._left = windows
        self._sum = 0.0
        self._capitals = np.ones(len(_SHARES))
        self.certain = bound < 0
        self.hopeless = self.certain

    def add(self, figure: float) -> None:
        """Take a window's figure; what is not a number is the worst."""
        mean = max((self._allowed - self._sum) / self._left, 0.0)
        self._left -= 1
        self._sum += math.inf if math.isnan(figure) else figure
        if self._sum > self._allowed * (1 + _ROUNDING):
            self.certain = self.hopeless = True
        elif mean > 0:
            self._capitals = self._capitals * (1 + _SHARES * (figure / mean - 1))
            self.hopeless = self.hopeless or float(self._capitals.mean()) >= 1 / FALSE_END


class GateTests:
    """Tests all gates with bounds that are judged by figures of windows.

    ``perplexity_ratio`` is not among them: what a window adds to it has no bound below.

    Args:
        bounds: Bound by gate name; None is not judged.
        windows: W.
        rows: Tokens of each window.
    """

    def __init__(self, bounds: Mapping[str, float | None], windows: int, rows: int) -> None:
        self._of = windows
        self._seen = 0
        self._tests: dict[str, tuple[_Figure, MeanTest]] = {}
        for name, bound in bounds.items():
            if bound is None or name not in _FIGURES:
                continue
            figure, mean = _FIGURES[name](bound, windows * rows)
            self._tests[name] = figure, MeanTest(mean, windows)

    def add(self, scores: RowScores) -> list[EarlyEnd]:
        """Take a window's figures; the gates that cannot hold any more."""
        self._seen += 1
        for figure, test in self._tests.values():
            test.add(figure(scores))
        if self._seen == self._of:  # all are known: nothing ends early
            return []
        return [
            EarlyEnd(name, self._seen, self._of, test.certain)
            for name, (_, test) in self._tests.items()
            if test.hopeless
        ]


def random_order(windows: int) -> Int32:
    """The order [W] in which windows are measured: the same for every engine of a compile."""
    return np.random.default_rng(windows).permutation(windows).astype(np.int32)


def _kl_mean(bound: float, rows: int) -> tuple[_Figure, float]:
    return lambda scores: float(scores.kl.mean()), bound


def _kl_p99(bound: float, rows: int) -> tuple[_Figure, float]:
    """Rows beyond the bound: the percentile is beyond it if those above its place all are."""
    above = rows - math.floor(0.99 * (rows - 1))
    return lambda scores: float((~(scores.kl <= bound)).mean()), (above - 1) / rows


def _kl_max(bound: float, rows: int) -> tuple[_Figure, float]:
    return lambda scores: float((~(scores.kl <= bound)).mean()), 0.0


def _top1(bound: float, rows: int) -> tuple[_Figure, float]:
    return lambda scores: 1 - float(scores.agree.mean()), 1 - bound


def _top5(bound: float, rows: int) -> tuple[_Figure, float]:
    return lambda scores: 1 - float(scores.among_top5.mean()), 1 - bound


def _perplexity(bound: float, rows: int) -> tuple[_Figure, float]:
    mean = math.log(bound) if bound > 0 else -math.inf
    return lambda scores: float(scores.nll_engine.mean()), mean


#: A window's figure and the bound on its mean, of a gate's bound and the number of all rows.
_FIGURES: Mapping[str, Callable[[float, int], tuple[_Figure, float]]] = {
    "kl_mean": _kl_mean,
    "kl_p99": _kl_p99,
    "kl_max": _kl_max,
    "top1_agreement": _top1,
    "top5_agreement": _top5,
    "perplexity": _perplexity,
}
