"""The choice of the rows that the next step computes. Integers and queues only.

The one idea: every request has ``num_computed`` tokens that catch up with its ``num_tokens``.
A step gives each chosen request a number of rows; prefill, a chunk of it and decode are alike
(continuous batching: Yu et al., 2022; chunked prefill mixed with decode: Agrawal et al., 2024).

Nobody starves:
1. Every running request that decodes gets its row in every step, before any prefill: at most
   half of the token budget can go to decodes, because no more requests run at once.
2. The rest of the budget, at least half, or ``prefill_chunk`` where that is less, goes to prefills
   in the order of `policy`: by arrival, moved by priority.
3. Requests are admitted in that order, and the last of it is preempted, for those that run and
   need blocks and for one that waits before it. So the first always advances; alone it fits, which
   is checked when it is accepted.

`policy` states the bound that follows. Drafted tokens get what rows are left after all of these,
and never another request's blocks. Rows that score a prompt want logits, of which a step gives
fewer: such a prompt gets as many as are left of them.

Completions of one prompt follow their leader, the first of them: they wait while it computes the
prompt, and then take over its blocks (`Scheduler.fork`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from typing import Generic

from optc.runtime.kv.kv_blocks import BlockCopy, KVBlocks
from optc.runtime.scheduling.chunks import Chunk, R, Rows, pending
from optc.runtime.scheduling.policy import beside, order, place, rank
from optc.runtime.scheduling.waiting import WaitingQueue


class Scheduler(Generic[R]):
    """Queues of requests over the KV blocks.

    Args:
        blocks: KV blocks of all groups.
        token_budget: Most rows of one step.
        max_running: Most requests that hold blocks at once; at most ``max_logit_rows``.
        max_logit_rows: Most rows of a step whose logits are wanted; None is the budget.
        prefill_chunk: Most rows of a step that prefills get while others decode; None is no limit.
    """

    def __init__(
        self,
        blocks: KVBlocks,
        token_budget: int,
        max_running: int,
        max_logit_rows: int | None = None,
        prefill_chunk: int | None = None,
    ) -> None:
        self.blocks = blocks
        self.token_budget = token_budget
        self.max_logit_rows = token_budget if max_logit_rows is None else max_logit_rows
        self.max_running = max(1, min(max_running, token_budget // 2))
        self._prefill_chunk = token_budget if prefill_chunk is None else prefill_chunk
        self.preempted: list[R] = []
        self.admitted: list[R] = []
        self.reused: list[tuple[R, int]] = []
        self._steps = 0
        self._waiting: WaitingQueue[R] = WaitingQueue()
        self._running: list[R] = []  # in order

    @property
    def running(self) -> Sequence[R]:
        """Requests that hold blocks, the first in order first."""
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
        """All requests, those that run first."""
        yield from self._running
        yield from self._waiting

    def add(self, request: R) -> None:
        """Queue a request; ids must ascend, and the completions of one prompt come together."""
        leader = request.leader_id
        request.rank = rank(request.priority, self._steps, leader, request.id - leader)
        self._waiting.add(request)

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
        self._steps += 1
        self.preempted, self.admitted, self.reused = [], [], []
        rows = Rows(self.token_budget, self.max_logit_rows)
        self._running.sort(key=order)
        decoding, prefills = self._by_kind()
        for request in decoding:
            self._advance(request, rows)
        kept_back = max(0, rows.left - self._prefill_chunk) if decoding else 0
        rows.left -= kept_back
        for request in prefills:
            self._admit(rows, before=request)
            self._catch_up(request)
            self._advance(request, rows)
        self._admit(rows)
        rows.left += kept_back
        chunks = [
            Chunk(request, request.num_computed, rows.of[request.id])
            for request in self._running
            if request.id in rows.of
        ]
        return self._add_drafts(chunks, min(rows.left, rows.logits))

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
        request.num_held = 0
        self.blocks.store(request, before)
        self.blocks.release_behind(request.tables, request.num_computed)

    def hold(self, request: R, count: int) -> None:
        """Record that ``count`` drafts were accepted that must be computed again, because the step
        kept no states behind them: beside the token after them, in the next step."""
        request.num_held = count

    def fork(self, leader: R) -> list[tuple[R, list[BlockCopy]]]:
        """Start those who wait for the prompt that ``leader`` has just computed, as many as fit
        and as have nobody before them.

        Returns:
            Each with the copies that must be made before its next step. The others are admitted
            like any request.
        """
        forked: list[tuple[R, list[BlockCopy]]] = []
        while len(self._running) < self.max_running:
            request = self._next()
            if (
                request is None
                or request.leader_id != leader.id
                or request.num_tokens != leader.num_computed
            ):
                break
            copies = self.blocks.fork(leader.tables, request.tables, request.num_tokens)
            if copies is None:
                break
            request.num_computed = request.num_tokens
            self._start(request)
            forked.append((request, copies))
        return forked

    def branch(self, parent: R, child: R) -> list[BlockCopy]:
        """Take in a request that knows just what ``parent`` has known and computed, with blocks
        copied on write; without room, or if the parent lost its own, it waits to compute them.

        Returns:
            The copies that must be made before its next step.
        """
        child.rank, child.num_computed = beside(parent.rank, child.id - parent.id), 0
        if parent in self._running and len(self._running) < self.max_running:
            copies = self.blocks.fork(parent.tables, child.tables, parent.num_computed)
            if copies is not None:
                child.num_computed = parent.num_computed
                insort(self._running, child, key=order)
                return copies
        self._waiting.add(child)
        return []

    def check_integrity(self) -> None:
        """Check blocks and queues.

        Raises:
            RuntimeError: A block leaked, a waiting request holds blocks, or the order broke.
        """
        self.blocks.check_integrity(self.requests())
        if any(table for request in self._waiting for table in request.tables.blocks):
            raise RuntimeError("a waiting request holds blocks")
        places = [place(request) for request in self._waiting]
        if places != sorted(places) or len(self._running) > self.max_running:
            raise RuntimeError(f"{len(self._running)} running, waiting in the order {places}")

    def _by_kind(self) -> tuple[list[R], list[R]]:
        """Running requests that decode, held drafts included, and those that read prompts."""
        decoding: list[R] = []
        prefills: list[R] = []
        for request in self._running:
            if wanted := pending(request):
                (decoding if wanted <= 1 + request.num_held else prefills).append(request)
        return decoding, prefills

    def _add_drafts(self, chunks: list[Chunk[R]], left: int) -> list[Chunk[R]]:
        """Add rows for drafts, at most ``left``, as long as blocks are to be had."""
        for index, chunk in enumerate(chunks):
            request, start, rows, _ = chunk
            if not request.num_drafted:
                continue
            count = min(request.num_drafted, left) if chunk.completes else 0
            while count and not self.blocks.grow(request.tables, start + rows + count):
                count -= 1
            if count:
                left -= count
                chunks[index] = Chunk(request, start, rows + count, count)
        return chunks

    def _advance(self, request: R, rows: Rows) -> None:
        """Give a running request the rows it wants, as far as there are any; preempt those behind
        it for blocks, or itself if there are none."""
        if request in self.preempted:
            return
        count = rows.fit(request)
        while count and not self.blocks.grow(request.tables, request.num_computed + count):
            if not self._take_from_drafts() and self._preempt(rows) is request:
                return
        if count:
            rows.give(request, count)

    def _catch_up(self, request: R) -> None:
        before = request.num_computed
        if request not in self.preempted and self.blocks.catch_up(request, request.score_row):
            self.reused.append((request, request.num_computed - before))

    def _admit(self, rows: Rows, before: R | None = None) -> None:
        """Admit in order whom there is room for, all or those before a running request."""
        while rows.left and (request := self._next()) is not None:
            if before is not None and order(before) < order(request):
                return
            if request in self.preempted or self._follows(request):
                return
            if self._full_for(request) or self._lacks_logits(rows):
                return
            request.num_computed = self.blocks.reuse(request, request.score_row)
            while (count := self._room(request, rows)) == 0:
                if self._take_from_drafts():
                    continue
                if not self._yields_to(request) or self._lacks_logits(rows):
                    self.blocks.free(request.tables)
                    request.num_computed = 0
                    return
                self._preempt(rows)
            self._start(request)
            self.admitted.append(request)
            self.reused.append((request, request.num_computed))
            rows.give(request, count)

    def _next(self) -> R | None:
        """The first waiting request that may be admitted."""
        return next((r for r in self._waiting if not r.idle), None)

    def _follows(self, request: R) -> bool:
        """Its leader is still computing their prompt."""
        leader = request.leader_id
        return any(r.id == leader and r.num_computed < r.num_prompt for r in self._running)

    def _full_for(self, request: R) -> bool:
        """As many run as may, and none of them gives way: looking for a cached prefix would count
        as a use of it, in every step that the request waits."""
        return len(self._running) >= self.max_running and not self._yields_to(request)

    def _lacks_logits(self, rows: Rows) -> bool:
        """Prompts that are scored took all rows of logits: nobody gives way for those."""
        return not rows.logits and len(self._running) < self.max_running

    def _yields_to(self, request: R) -> bool:
        """The last running request is preempted for a new one, if that needs its room."""
        return bool(self._running) and order(self._running[-1]) > order(request)

    def _room(self, request: R, rows: Rows) -> int:
        """Take the blocks for a new request's first rows; returns how many rows, 0 without room
        for all that is known and one token more: it would soon be preempted."""
        count = rows.fit(request)
        has_room = (
            len(self._running) < self.max_running
            and self.blocks.fits_new(request.tables, request.num_tokens + 1, self.token_budget)
            and self.blocks.grow(request.tables, request.num_computed + count)
        )
        return count if has_room else 0

    def _take_from_drafts(self) -> bool:
        """Release all blocks that hold nothing but drafts; False if there are none."""
        released = [self.blocks.shrink(each.tables, each.num_tokens) for each in self._running]
        return any(released)

    def _start(self, request: R) -> None:
        self._waiting.remove(request)
        insort(self._running, request, key=order)

    def _preempt(self, rows: Rows) -> R:
        """Send the last running request back to the queue."""
        victim = self._running.pop()
        self.blocks.free(victim.tables)
        victim.num_computed = 0
        rows.take_back(victim.id)
        self._waiting.add(victim)
        self.preempted.append(victim)
        return victim
