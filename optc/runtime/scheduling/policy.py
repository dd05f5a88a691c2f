"""The one order of all requests, and the bound on waiting that follows from it.

A request of priority p counts as though it had arrived ``p * AGING_STEPS`` steps earlier, and its
place in the order of arrival never changes. Waiting is thereby aging: against newcomers, a
request gains one priority in ``AGING_STEPS`` steps. Of the beams of one search, and of the
completions of one prompt, each further one counts as one priority lower: a request that would take
all places leaves some to those who come a little later. What follows:

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
        leader: Breaks ties; completions of one prompt that are due together stay together.
    """

    due: int
    leader: int


class Ranked(Protocol):
    """A request that has its place. ``idle``: it wants no rows until others of its rank are as
    far."""

    id: int
    idle: bool
    rank: Rank


def rank(priority: int, step: int, leader: int, further: int = 0) -> Rank:
    """The place of a request that arrives at ``step``, the ``further``-th after its leader."""
    return Rank(step + (further - priority) * AGING_STEPS, leader)


def beside(known: Rank, further: int) -> Rank:
    """The place of the ``further``-th one after one of its kind, negative before it."""
    return known._replace(due=known.due + further * AGING_STEPS)


def place(request: Ranked) -> tuple[Rank, int]:
    """Sorts requests by rank."""
    return request.rank, request.id


def order(request: Ranked) -> tuple[bool, Rank, int]:
    """Sorts requests: those first that want rows, and by rank. An idle beam waits for the others
    of its search, which may need its room."""
    return request.idle, request.rank, request.id


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
