"""From steps that were served to what service adds to those that were measured alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import frexp

import numpy as np
import numpy.typing as npt

from optc.proof.simulate.service import ServedStep, Service, begun, follows
from optc.proof.simulate.step_times import Curve, Spread, StepTimes

Float64 = npt.NDArray[np.float64]

#: Weight of "as measured alone" among the steps, which decides where none was served.
_PRIOR = 0.5
#: What happens around steps is found for such numbers of rows of logits as are seen as often as
#: this share of the most frequent one.
_OFTEN = 0.05
#: Fewest steps of about one length, and most quantiles that are kept of them.
_ENOUGH, _QUANTILES = 40, 100


def fit_service(times: StepTimes, service: Service) -> StepTimes:
    """``times`` with what its steps take in service, in means: what holds steps up now and then
    is a part of serving.

    Least squares of relative errors. Of a step's time in the engine: a factor by its rows, and
    time for each request that arrives; of the time to the next step: by the rows of logits
    before, and for each piece of a prompt in the next.
    """
    steps = service.steps
    alone = np.array([times.engine_s(step.sequences, step.logit_rows) for step in steps])
    rows = np.array([sum(new for new, _ in step.sequences) for step in steps], float)
    # Those of the next step arrived in this one, if there was one to hold up.
    arrived = np.array([begun(after) * follows(after) for after in steps[1:]] + [0], float)
    took = np.array([step.ended_s - step.began_s for step in steps])
    knots = times.body.knots
    weight = 1 / np.maximum(alone, 1e-9)
    columns = np.column_stack([_hats(rows, knots) * alone[:, None], arrived])
    factors = _solve(columns * weight[:, None], took * weight, np.append(np.ones(len(knots)), 0))
    times = replace(
        times,
        service=Curve(knots, tuple(factors[:-1].tolist())),
        arrival_s=max(0.0, float(factors[-1])),
    )
    times = _fit_host(times, service)
    return replace(
        times,
        spread=_spread(times, steps),
        submit_s=_mean(service.submits),
        reach_s=max(0.0, _mean(service.reaches)),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _spread(times: StepTimes, steps: Sequence[ServedStep]) -> tuple[Spread, ...]:
    """Quantiles of real over expected seconds, up to the next step's begin."""
    by_length: dict[int, list[tuple[float, float]]] = {}
    for before, after in pairwise(steps):
        expected = times.step_s(before.sequences, before.logit_rows)
        if follows(after) and expected > 0:
            real = after.began_s - before.began_s
            by_length.setdefault(frexp(expected)[1], []).append((expected, real / expected))
    spreads: list[Spread] = []
    waiting: list[tuple[float, float]] = []  # too few to say anything on their own
    for length in sorted(by_length):
        waiting += by_length[length]
        if len(waiting) >= _ENOUGH:
            spreads.append(_quantiles(waiting))
            waiting = []
    return (*spreads, _quantiles(waiting)) if waiting and not spreads else tuple(spreads)


def _quantiles(found: list[tuple[float, float]]) -> Spread:
    """Means of equal parts, so that those few that take long keep their share of the time."""
    ratios = np.sort([ratio for _, ratio in found])
    factors = np.array(
        [part.mean() for part in np.array_split(ratios, min(len(ratios), _QUANTILES))]
    )
    return Spread(
        max(expected for expected, _ in found), tuple((factors / factors.mean()).tolist())
    )


def _fit_host(times: StepTimes, service: Service) -> StepTimes:
    pairs = [(before, after) for before, after in pairwise(service.steps) if follows(after)]
    if not pairs:
        return times
    logit_rows = np.array([before.logit_rows for before, _ in pairs], float)
    prompts = np.array([_prompts(after) for _, after in pairs], float)
    gaps = np.array([after.began_s - before.ended_s for before, after in pairs])
    counts = Counter(before.logit_rows for before, _ in pairs)
    most = max(counts.values())
    knots = tuple(sorted(rows for rows, count in counts.items() if count >= most * _OFTEN))
    columns = np.column_stack([_hats(logit_rows, knots), prompts])
    found = _solve(columns, gaps, np.full(len(knots) + 1, gaps.mean()), prior=1e-3)
    host = Curve(tuple(map(float, knots)), tuple(np.maximum(0, found[:-1]).tolist()))
    return replace(times, host=host, prompt_s=max(0.0, float(found[-1])))


def _prompts(step: ServedStep) -> int:
    return sum(new > 1 for new, _ in step.sequences)


def _hats(x: Float64, knots: Sequence[float]) -> Float64:
    """[n, knots] weights with which values at the knots make a `Curve`'s value at each x [n]."""
    return np.column_stack([np.interp(x, knots, one) for one in np.eye(len(knots))])


def _solve(columns: Float64, values: Float64, expected: Float64, prior: float = _PRIOR) -> Float64:
    """Least squares, each unknown drawn to what is ``expected`` of it."""
    scale = np.sqrt((columns**2).mean(axis=0))
    scale[scale == 0] = 1.0
    pull = np.diag(prior * scale)
    system = np.vstack([columns, pull])
    found: Float64 = np.linalg.lstsq(system, np.append(values, pull @ expected), rcond=None)[0]
    return found
