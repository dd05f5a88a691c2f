"""Which rows the next step computes. Integers and queues only.

The one idea: every request has ``num_computed`` tokens that catch up with its ``num_tokens``.
A step gives each chosen request a number of rows; prefill, a chunk of it and decode are alike
(continuous batching: Yu et al., 2022; chunked prefill mixed with decode: Agrawal et al., 2024).

Nobody starves:
1. Every running request that decodes gets its row in every step, before any prefill: at most
   half of the token budget can go to decodes, because no more requests run at once.
2. The rest of the budget, at least half, goes to prefills in order of arrival.
3. Requests are admitted in order of arrival and only the youngest running one is preempted, so
   the oldest always advances; alone it fits, which is checked when it is accepted.

Drafted tokens get what rows are left after all of these, and never another request's blocks.

Completions of one prompt follow their leader, the first of them: they wait while it computes the
prompt, and then take over its blocks (`Scheduler.fork`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from optc.runtime.executable import Int32
from optc.runtime.kv_blocks import BlockCopy, BlockTables, KVBlocks


class Schedulable(Protocol):
    """What the scheduler reads and writes of a request; tokens and salt only pass through to the
    prefix cache. ``leader_id`` is the id of the request whose prompt it shares, or its own.
    ``num_drafted`` tokens after the known ones may be verified along with them."""

    id: int
    leader_id: int
    salt: str
    num_prompt: int
    num_tokens: int
    num_computed: int
    num_drafted: int
    tables: BlockTables

    @property
    def tokens(self) -> Int32:
        """[num_tokens] all known tokens."""
        ...


R = TypeVar("R", bound=Schedulable)


class Chunk(NamedTuple, Generic[R]):
    """``rows`` rows of ``request`` from its token ``start`` on, the last ``drafted`` of them
    beyond its known tokens."""

    request: R
    start: int
    rows: int
    drafted: int = 0

    @property
    def completes(self) -> bool:
        """The last known token is computed, so its logits give the next one."""
        return self.start + self.rows - self.drafted == self.request.num_tokens


@dataclass
class _Rows:
    """The rows of a step that is being planned: how many are left, and who has how many."""

    left: int
    of: dict[int, int] = field(default_factory=dict)

    def give(self, request_id: int, count: int) -> None:
        self.of[request_id] = count
        self.left -= count

    def take_back(self, request_id: int) -> None:
        self.left += self.of.pop(request_id, 0)


class Scheduler(Generic[R]):
    """Queues of requests over the KV blocks.

    Args:
        blocks: KV blocks of all groups.
        token_budget: Most rows of one step.
        max_running: Most requests that hold blocks at once; at most ``max_logit_rows``.
        max_logit_rows: Most rows of a step whose logits are wanted; None is the budget.
    """

    def __init__(
        self,
        blocks: KVBlocks,
        token_budget: int,
        max_running: int,
        max_logit_rows: int | None = None,
    ) -> None:
        self.blocks = blocks
        self.token_budget = token_budget
        self.max_logit_rows = token_budget if max_logit_rows is None else max_logit_rows
        self.max_running = max(1, min(max_running, token_budget // 2))
        self.preempted: list[R] = []
        self.admitted: list[R] = []
        self.reused: list[tuple[R, int]] = []
        self._waiting: deque[R] = deque()  # by arrival; all are younger than the running ones
        self._running: list[R] = []  # by arrival

    @property
    def running(self) -> Sequence[R]:
        """Requests that hold blocks, oldest first."""
        return self._running

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def requests(self) -> Iterator[R]:
        """All requests, oldest first."""
        yield from self._running
        yield from self._waiting

    def add(self, request: R) -> None:
        """Queue a request; ids must ascend."""
        self._waiting.append(request)

    def remove(self, request: R) -> None:
        """Drop a request that finished or was cancelled and free its blocks.

        Raises:
            ValueError: The scheduler does not have it.
        """
        if request in self._running:
            self._running.remove(request)
        else:
            self._waiting.remove(request)
        self.blocks.free(request.tables)

    def schedule(self) -> list[Chunk[R]]:
        """Choose the next step's rows and take the blocks they need.

        ``preempted`` then names the requests whose blocks were taken for it, ``admitted`` those
        that begin, and ``reused`` who got how many tokens from the prefix cache. The caller runs
        the step and calls `commit`.
        """
        self.preempted, self.admitted, self.reused = [], [], []
        rows = _Rows(self.token_budget)
        for request in sorted(self._running, key=lambda r: (_pending(r) > 1, r.id)):
            if _pending(request) > 1 and request not in self.preempted:
                self._catch_up(request)
            count = min(_pending(request), rows.left)
            if count and request not in self.preempted and self._make_room(request, count, rows):
                rows.give(request.id, count)
        if not self.preempted:
            self._admit(rows)
        chunks = [
            Chunk(request, request.num_computed, rows.of[request.id])
            for request in self._running
            if request.id in rows.of
        ]
        return self._add_drafts(chunks, min(rows.left, self.max_logit_rows - len(chunks)))

    def commit(self, chunks: list[Chunk[R]]) -> None:
        """Record that the step over ``chunks`` ran. Drafts do not count as computed until they
        are accepted."""
        for chunk in chunks:
            self.accept(chunk.request, chunk.rows - chunk.drafted)

    def accept(self, request: R, count: int) -> None:
        """Record that ``count`` more tokens are computed and known; cache full blocks, release
        those behind windows."""
        before = request.num_computed
        request.num_computed += count
        self.blocks.store(request, before)
        self.blocks.release_behind(request.tables, request.num_computed)

    def fork(self, leader: R) -> list[tuple[R, list[BlockCopy]]]:
        """Start those who wait for the prompt that ``leader`` has just computed, as many as fit.

        Returns:
            Each with the copies that must be made before its next step. The others are admitted
            like any request.
        """
        forked: list[tuple[R, list[BlockCopy]]] = []
        while self._waiting and len(self._running) < self.max_running:
            request = self._waiting[0]
            if request.leader_id != leader.id or request.num_tokens != leader.num_computed:
                break
            copies = self.blocks.fork(leader.tables, request.tables, request.num_tokens)
            if copies is None:
                break
            request.num_computed = request.num_tokens
            self._running.append(self._waiting.popleft())
            forked.append((request, copies))
        return forked

    def check_integrity(self) -> None:
        """Check blocks and queues.

        Raises:
            RuntimeError: A block leaked, a waiting request holds blocks, or the order broke.
        """
        self.blocks.check_integrity(self.requests())
        if any(table for request in self._waiting for table in request.tables.blocks):
            raise RuntimeError("a waiting request holds blocks")
        ids = [request.id for request in self.requests()]
        if ids != sorted(ids) or len(self._running) > self.max_running:
            raise RuntimeError(f"{len(self._running)} running, order of arrival {ids}")

    def _add_drafts(self, chunks: list[Chunk[R]], left: int) -> list[Chunk[R]]:
        """Add rows for drafts, at most ``left``, as long as blocks are to be had."""
        for index, chunk in enumerate(chunks):
            request, start, rows, _ = chunk
            count = min(request.num_drafted, left) if chunk.completes else 0
            while count and not self.blocks.grow(request.tables, start + rows + count):
                count -= 1
            if count:
                left -= count
                chunks[index] = Chunk(request, start, rows + count, count)
        return chunks

    def _catch_up(self, request: R) -> None:
        before = request.num_computed
        if self.blocks.catch_up(request):
            self.reused.append((request, request.num_computed - before))

    def _make_room(self, request: R, count: int, rows: _Rows) -> bool:
        """Take the blocks for ``count`` more rows, preempting younger requests if need be;
        False if the request itself is the youngest and had to go."""
        while not self.blocks.grow(request.tables, request.num_computed + count):
            victim = self._running.pop()
            self.blocks.free(victim.tables)
            victim.num_computed = 0
            rows.take_back(victim.id)
            self._waiting.appendleft(victim)
            self.preempted.append(victim)
            if victim is request:
                return False
        return True

    def _admit(self, rows: _Rows) -> None:
        running = self._running
        while self._waiting and rows.left and len(running) < self.max_running:
            request = self._waiting[0]
            if any(r.id == request.leader_id and r.num_computed < r.num_prompt for r in running):
                return
            request.num_computed = self.blocks.reuse(request)
            count = min(_pending(request), rows.left)
            # Room for all that is known and one token more, or it would soon be preempted.
            if not (
                self.blocks.fits_new(request.tables, request.num_tokens + 1, self.token_budget)
                and self.blocks.grow(request.tables, request.num_computed + count)
            ):
                self.blocks.free(request.tables)
                request.num_computed = 0
                return
            running.append(self._waiting.popleft())
            self.admitted.append(request)
            self.reused.append((request, request.num_computed))
            rows.give(request.id, count)


def _pending(request: Schedulable) -> int:
    return request.num_tokens - request.num_computed
