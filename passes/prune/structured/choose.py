"""Chooses what goes, step by step: what costs least for what it saves, as things stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

Item = TypeVar("Item")
#: Of each candidate (the second list), together with what went already (the first).
Costs = Callable[[Sequence[Item], Sequence[Item]], Sequence[float]]
#: Steps that measure; of more items that have to go, several go in one step.
STEPS = 16


@dataclass(frozen=True)
class Step(Generic[Item]):
    """One step.

    Attributes:
        taken: What goes.
        costs: Of every candidate, taken together with what went before; in order of candidates.
        candidates: All that could have gone.
    """

    taken: tuple[Item, ...]
    candidates: tuple[Item, ...]
    costs: tuple[float, ...]


def choose(
    candidates: Callable[[Sequence[Item]], Sequence[Item]],
    costs: Costs[Item],
    counted: Callable[[Sequence[Item]], Fraction],
    most: Fraction,
) -> list[Step[Item]]:
    """Steps until what is left counts at most ``most``, or until nothing more can go.

    Args:
        candidates: What can go beside what went already.
        costs: What the model loses without each.
        counted: What is left without some items.
        most: The target.
    """
    gone: list[Item] = []
    steps: list[Step[Item]] = []
    before = 0.0
    while (excess := counted(gone) - most) > 0 and (able := candidates(gone)):
        found = costs(gone, able)
        now = counted(gone)
        saved = [now - counted([*gone, one]) for one in able]
        score = [
            max(cost - before, 0.0) / float(min(save, excess)) if save > 0 else float("inf")
            for cost, save in zip(found, saved, strict=True)
        ]
        order = sorted(range(len(able)), key=lambda i: (score[i], -i))
        left = max(1, STEPS - len(steps))
        usual = max(saved)
        at_once = max(1, int(excess / usual / left)) if usual > 0 else 1
        taken: list[Item] = []
        for index in order:
            if len(taken) == at_once or counted([*gone, *taken]) <= most:
                break
            if able[index] in candidates([*gone, *taken]):
                taken.append(able[index])
        gone += taken
        steps.append(Step(tuple(taken), tuple(able), tuple(found)))
        before = found[order[0]]
    return steps
