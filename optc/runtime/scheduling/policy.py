"""Who goes first: the one order of all requests, and the bound on waiting that follows from it.

A request of priority p counts as though it had arrived ``p * AGING_STEPS`` steps earlier, and its
place in the order of arrival never changes. Waiting is thereby aging: against newcomers, a
request gains one priority in ``AGING_STEPS`` steps. What follows:

1. A request of priority p is overtaken only by requests of a higher priority q that arrive at most
   ``(q - p) * AGING_STEPS`` steps after it.
2. The first in the order advances in every step: it is admitted at once (those behind it are
   preempted for it), nobody takes its blocks, it gets its row if it decodes, and else at least
   half of the token budget (or ``prefill_chunk``). So it ends within `steps_when_first` steps.
3. Nobody starves, hence: who has k requests before it, once nobody can overtake it any more (1),
   ends within ``(k + 1) * steps_when_first`` steps of the longest of them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

#: Steps of waiting that weigh as much as one priority: about a second of a small model's decode.
AGING_STEPS = 64


class Rank(NamedTuple):
    """A place in the order; the smallest goes first.

    Attributes:
        due: The step of arrival, moved by the priority.
        leader: Breaks ties; completions of one prompt stay together.
    """

    due: int
    leader: int


class Ranked(Protocol):
    """A request that has its place. ``idle``: it wants no rows until others of its rank are as
    far."""

    id: int
    idle: bool
    rank: Rank


def rank(priority: int, step: int, leader: int) -> Rank:
    """The place of a request that arrives at ``step``."""
    return Rank(step - priority * AGING_STEPS, leader)


def place(request: Ranked) -> tuple[Rank, int]:
    """Sorts requests by rank."""
    return request.rank, request.id


def order(request: Ranked) -> tuple[Rank, bool, int]:
    """Sorts requests: by rank, and of one rank those first that want rows."""
    return request.rank, request.idle, request.id


def steps_when_first(
    tokens: int, output: int, budget: int, prefill_chunk: int | None = None
) -> int:
    """Most steps until the first in the order ends.

    Args:
        tokens: Known tokens that are to be computed, those lost by preemption included.
        output: Tokens that it draws from then on.
        budget: Rows of one step; at least two.
        prefill_chunk: Most of them for prefills while others decode; None is no limit.
    """
    least = budget - budget // 2
    least = least if prefill_chunk is None else min(least, prefill_chunk)
    return -(-tokens // least) + output
