"""The scheduler's view of a request, and the rows that it gives out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from optc.runtime.executable.executable import Int32
from optc.runtime.kv.kv_blocks import BlockTables
from optc.runtime.scheduling.policy import Rank


class Counted(Protocol):
    """Whose rows can be counted."""

    num_tokens: int


class Schedulable(Counted, Protocol):
    """The fields of a request that the scheduler reads and writes; tokens and salt only pass
    through to the prefix cache.

    ``leader_id`` is the id of the request whose prompt it shares, or its own. ``rank`` is set when
    it is queued. ``idle`` requests get no rows. ``num_drafted`` tokens after the known ones may be
    verified along with them. ``num_held`` of the pending tokens were computed once, as drafts whose
    states were not kept (`Scheduler.hold`). ``score_row`` is the first row whose logits score a
    token of the prompt: it and those behind it are computed, whatever is cached. None is none."""

    id: int
    leader_id: int
    priority: int
    rank: Rank
    idle: bool
    salt: str
    num_prompt: int
    num_computed: int
    num_drafted: int
    num_held: int
    tables: BlockTables

    @property
    def score_row(self) -> int | None:
        """The first row that scores."""
        ...

    @property
    def tokens(self) -> Int32:
        """[num_tokens] all known tokens."""
        ...


R = TypeVar("R", bound=Schedulable)
C = TypeVar("C", bound=Counted)


class Chunk(NamedTuple, Generic[C]):
    """``rows`` rows of ``request`` from its token ``start`` on, the last ``drafted`` of them
    beyond its known tokens."""

    request: C
    start: int
    rows: int
    drafted: int = 0

    @property
    def completes(self) -> bool:
        """The last known token is computed, so its logits give the next one."""
        return self.start + self.rows - self.drafted == self.request.num_tokens


@dataclass
class Rows:
    """The rows of a step that is being planned: how many are left, those with logits apart, and
    who has how many."""

    left: int
    logits: int
    of: dict[int, int] = field(default_factory=dict)
    _logits_of: dict[int, int] = field(default_factory=dict)

    def fit(self, request: Schedulable) -> int:
        """The number of rows that a request gets of those that are left."""
        count = min(pending(request), self.left)
        return count - max(0, logits_wanted(request, count) - self.logits)

    def give(self, request: Schedulable, count: int) -> None:
        """Set aside ``count`` rows."""
        wanted = logits_wanted(request, count)
        self.of[request.id], self._logits_of[request.id] = count, wanted
        self.left -= count
        self.logits -= wanted

    def take_back(self, request_id: int) -> None:
        """Undo `give`."""
        self.left += self.of.pop(request_id, 0)
        self.logits += self._logits_of.pop(request_id, 0)


def pending(request: Schedulable) -> int:
    """Rows that a request wants now."""
    return 0 if request.idle else request.num_tokens - request.num_computed


def logits_wanted(request: Schedulable, rows: int) -> int:
    """Of how many of a request's next ``rows`` rows the logits are wanted: of those that score its
    prompt, and of the last known token's."""
    end, first = request.num_computed + rows, request.num_tokens - 1
    if request.score_row is not None:
        first = max(request.num_computed, request.score_row)
    return max(0, end - first)
