"""Estimates of a format's loss where it was not measured, by the error of the layer's results.

For small errors E of a weight, the KL is about tr(E F Eᵀ) / 2 with a matrix F of the weight's own
(linearity in the squared error: Malinovskii et al., HIGGS, 2025, arXiv:2411.17525). E H Eᵀ with
the inputs' Hessian H is known without a run of the model, and grows alike from format to format.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def estimate(errors: Sequence[float], measured: Mapping[float, float]) -> list[float]:
    """The KL of formats of one group.

    The ratio of KL to error is that of the nearest measured errors: between two of them it goes
    evenly with the logarithm of the error, and beyond the last ones it stays.

    Args:
        errors: Of each format, at least 0.
        measured: KL by error, at least one.
    """
    known = sorted((error, kl) for error, kl in measured.items() if error > 0)
    return [error * _ratio(error, known) if error > 0 and known else 0.0 for error in errors]


def _ratio(error: float, known: Sequence[tuple[float, float]]) -> float:
    low, high = known[0], known[-1]
    for point in known:
        if point[0] <= error:
            low = point
    for point in reversed(known):
        if point[0] >= error:
            high = point
    if error <= low[0] or error >= high[0] or low[0] == high[0]:
        nearest = low if error <= low[0] else high
        return nearest[1] / nearest[0]
    share = math.log(error / low[0]) / math.log(high[0] / low[0])
    return (low[1] / low[0]) * (1 - share) + (high[1] / high[0]) * share


def runs_within(
    roles: Sequence[str], costs: Sequence[float], formats: int, limit: float
) -> tuple[list[int], int]:
    """The groups to measure, and in how many formats, so that it costs at most ``limit``.

    All groups in all formats; if that is too much, in one format; then every second group of a role
    and the last, every fourth, … to the first and the last.

    Args:
        roles: Of each group.
        costs: What a measurement of each costs.
        formats: How many would be measured.
        limit: If even the fewest cost more, these are measured all the same.
    """
    places = [roles[:i].count(role) for i, role in enumerate(roles)]
    last = dict(zip(roles, places, strict=True))
    step = 1
    while True:
        chosen = [
            i
            for i, (role, place) in enumerate(zip(roles, places, strict=True))
            if place % step == 0 or place == last[role]
        ]
        total = sum(costs[i] for i in chosen)
        if step == 1 and total * formats <= limit:
            return chosen, formats
        if total <= limit or step > max(places, default=0):
            return chosen, 1
        step *= 2


def nearest_alike(index: int, roles: Sequence[str], measured: Sequence[int]) -> int:
    """The measured group whose ratio a group takes: the nearest of its role, or the nearest."""
    alike = [i for i in measured if roles[i] == roles[index]] or list(measured)
    return min(alike, key=lambda i: (abs(i - index), i))
