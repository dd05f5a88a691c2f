"""`BeamSearches`: the searches that an engine runs, and what a step does to their beams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from optc.runtime.beams.group import BeamGroup
from optc.runtime.executable.executable import Float32
from optc.runtime.kv.kv_blocks import BlockCopy
from optc.runtime.requests.request import Request
from optc.runtime.scheduling.scheduler import Scheduler
from optc.runtime.step.logit_rows import LogitRows


class Searched(NamedTuple):
    """The result of a step for beams: ``copies`` to be made, and requests that ``ended``."""

    copies: list[BlockCopy]
    ended: list[Request]


class BeamSearches:
    """The beam searches whose requests have not all finished.

    Args:
        eos: The model's end tokens.
    """

    def __init__(self, eos: frozenset[int]) -> None:
        self._eos = eos
        self._groups: dict[int, BeamGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, request: Request, max_tokens: int) -> bool:
        """Add a request with beams to its search; True if it is the first, which must be queued."""
        if request.leader_id == request.id:
            self._groups[request.id] = BeamGroup(request.params, self._eos, max_tokens)
        return self.group_of(request).join(request)

    def group_of(self, request: Request) -> BeamGroup:
        """The search that a request has joined."""
        return self._groups[request.leader_id]

    def leave(self, request: Request) -> None:
        """A request has finished; a search is forgotten when all its requests have."""
        if all(member.finish_reason for member in self.group_of(request).members):
            del self._groups[request.leader_id]

    def advance(
        self, draws: Iterable[LogitRows], logits: Float32, scheduler: Scheduler[Request], now: float
    ) -> Searched:
        """Give the logits [R, V] of a step to the beams it computed."""
        groups: dict[int, BeamGroup] = {}
        for draw in draws:
            if draw.request.is_beam:
                group = groups[draw.request.leader_id] = self.group_of(draw.request)
                group.offer(draw.request, logits[draw.first])
        copies = [copy for group in groups.values() for copy in group.advance(scheduler, now)]
        ended = [m for group in groups.values() if group.ended for m in group.members]
        return Searched(copies, ended)
