"""`Directory`: which replica has which prefix, and how much each has to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from optc.serve.replicas.block_changes import Changes

#: Tokens of prompts that a running answer counts for: so much longer may a prompt's way be that
#: spares a replica one more of them.
ANSWER = 16
#: What a token of a prompt counts for that a replica lacks: it holds up this request, and later
#: ones.
LACKING = 2
#: Reports for which blocks are believed that an ended request must have left: the next one may
#: have been on its way when it ended.
_BELIEVED = 2


@dataclass(eq=False)
class Ticket:
    """A request that was sent to a replica.

    Attributes:
        replica: Which; empty once it is gone.
        hashes: Of its prompt's blocks.
        tokens: Of its prompt.
        prefill: Tokens of it that the replica has to compute before the first answer.
    """

    replica: str
    hashes: Sequence[int]
    tokens: int
    prefill: int = 0


@dataclass
class _Known:
    """A replica as far as it is known.

    Attributes:
        number: Of the last change that it told of.
        reports: How often it told.
        blocks: That its cache has, as it told.
        coming: Blocks of requests that it has now, and how many of these have each.
        believed: Blocks of requests that have ended, and the report up to which they are believed.
        tickets: Requests that it has now.
    """

    number: int = 0
    reports: int = 0
    blocks: set[int] = field(default_factory=set)
    coming: Counter[int] = field(default_factory=Counter)
    believed: dict[int, int] = field(default_factory=dict)
    tickets: set[Ticket] = field(default_factory=set)

    def has(self, block: int) -> bool:
        """The replica has a block, or will."""
        return block in self.blocks or block in self.coming or block in self.believed

    def matched(self, hashes: Sequence[int]) -> int:
        """Leading blocks of a prompt that it has."""
        for count, block in enumerate(hashes):
            if not self.has(block):
                return count
        return len(hashes)

    @property
    def work(self) -> int:
        """Tokens to compute before it comes to a new request, running answers added."""
        return sum(one.prefill for one in self.tickets) + ANSWER * len(self.tickets)


class Directory:
    """Chooses among replicas. One thread uses it.

    A request goes where it costs least, in tokens to compute: those that wait there, `ANSWER` for
    each answer that runs there, and `LACKING` times those of its prompt that the replica's cache
    lacks. So a prefix stays where it is until another replica has less to do by more than twice
    its length: it would be computed once more there.

    What a replica has is known from its reports, and from what was sent to it since: a prompt is
    taken to be in the cache from the moment at which it is sent, so that prompts which come
    together go together. That may be wrong, as evictions are heard of later. Then tokens are
    computed that would not have been; an answer never depends on it.

    Args:
        block_size: Tokens a block.
    """

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._known: dict[str, _Known] = {}

    @property
    def replicas(self) -> tuple[str, ...]:
        """Those that there are."""
        return tuple(self._known)

    @property
    def numbers(self) -> dict[str, int]:
        """By replica, the number of the last change that was heard of."""
        return {name: one.number for name, one in self._known.items()}

    def order(self, hashes: Sequence[int], tokens: int) -> list[str]:
        """The replicas, the best first, for a prompt of these blocks and so many tokens. Where two
        are equal, the one with fewer cached blocks comes first."""

        def cost(name: str) -> tuple[int, int, int]:
            one = self._known[name]
            lacking = tokens - self._size * one.matched(hashes)
            return one.work + LACKING * lacking, len(one.blocks) + len(one.coming), len(one.tickets)

        return sorted(self._known, key=cost)

    def send(self, replica: str, hashes: Sequence[int], tokens: int) -> Ticket:
        """A request goes to a replica, of which nothing need be known."""
        ticket = Ticket("", hashes, tokens)
        self.move(ticket, replica)
        return ticket

    def move(self, ticket: Ticket, replica: str) -> None:
        """It has gone to this one instead."""
        if ticket.replica == replica:
            return
        self._leave(ticket)
        one = self._known.get(replica)
        if one is None:
            return
        ticket.replica = replica
        ticket.prefill = ticket.tokens - self._size * one.matched(ticket.hashes)
        one.tickets.add(ticket)
        one.coming.update(ticket.hashes)

    def began(self, ticket: Ticket) -> None:
        """Its answer has begun: its prompt is computed."""
        ticket.prefill = 0

    def ended(self, ticket: Ticket) -> None:
        """Its answer has ended: its prompt is in the cache, if it was computed."""
        one = self._known.get(ticket.replica)
        if one is not None and not ticket.prefill:
            until = one.reports + _BELIEVED
            one.believed.update(dict.fromkeys(ticket.hashes, until))
        self._leave(ticket)

    def heard(self, replica: str, changes: Changes) -> None:
        """A replica told what changed; a new one is known from now on."""
        one = self._known.setdefault(replica, _Known())
        one.number = changes.number
        one.reports += 1
        if changes.whole:
            one.blocks = set(changes.stored)
        else:
            one.blocks.update(changes.stored)
            one.blocks.difference_update(changes.removed)
        late = [block for block, until in one.believed.items() if until <= one.reports]
        for block in late:
            del one.believed[block]

    def keep(self, replicas: Collection[str]) -> None:
        """All others are gone, or end what they have and take no more."""
        for name in self._known.keys() - set(replicas):
            self.lose(name)

    def lose(self, replica: str) -> None:
        """A replica is gone, and all that was in its cache."""
        one = self._known.pop(replica, None)
        for ticket in one.tickets if one is not None else ():
            ticket.replica = ""

    def _leave(self, ticket: Ticket) -> None:
        one = self._known.get(ticket.replica)
        ticket.replica = ""
        if one is None or ticket not in one.tickets:
            return
        one.tickets.remove(ticket)
        one.coming.subtract(ticket.hashes)
        for block in ticket.hashes:
            if one.coming[block] <= 0:
                del one.coming[block]
