"""`Core`: draft -> schedule -> execute -> sample and verify -> update, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from optc.runtime.adapters.table import AdapterTable
from optc.runtime.beams.searches import BeamSearches
from optc.runtime.executable.executable import Executable
from optc.runtime.kv.kv_blocks import BlockCopy, KVBlocks
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.kv_events.events import StepLog
from optc.runtime.loop.output_processor import advance
from optc.runtime.metrics.engine_metrics import EngineMetrics
from optc.runtime.metrics.step_counters import count_drafts, count_queues, snapshot
from optc.runtime.metrics.step_workload import StepWorkload
from optc.runtime.outputs import Delta, FinishReason
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.deadlines import AT_ONCE, Deadlines
from optc.runtime.requests.request import Request
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.scheduling.scheduler import Scheduler
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.proposer import DraftOutcome
from optc.runtime.speculative.speculator import Speculator
from optc.runtime.spill.spill import Spill
from optc.runtime.spill.stores import Store
from optc.runtime.step.adapter_rows import with_adapters
from optc.runtime.step.batch import build_batch
from optc.runtime.step.kv_copies import move_kv
from optc.runtime.step.logit_rows import (
    Judged,
    LogitRows,
    constrained,
    judge,
    last_rows,
    logit_rows_of,
)
from optc.runtime.step.masks import fill_masks, prune_drafts
from optc.runtime.step.ruled import with_rules, with_states
from optc.runtime.step.scored_rows import score, scores_of


class Update(NamedTuple):
    """The change of one request in a step."""

    request: Request
    delta: Delta


class Core:
    """A loaded engine with its KV blocks and its requests. Not thread-safe.

    Args:
        executable: The engine; its KV pools are allocated here.
        plan: Sizes of the KV pools.
        settings: How it serves; None are the defaults. The rows of a step are at most the engine's
            own limit.
        eos_token_ids: Tokens that end a text.
        spill_store: Where cached prefixes go that are evicted; None is nowhere.
        speculator: Drafts tokens; None decodes one at a time. It does not change what is drawn,
            if the engine is batch-invariant.
        log: Told of blocks of cached prefixes that come and go; None is nobody.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self,
        executable: Executable,
        plan: KVPlan,
        settings: ServeSettings | None = None,
        *,
        eos_token_ids: Iterable[int] = (),
        spill_store: Store | None = None,
        speculator: Speculator | None = None,
        log: StepLog | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        settings = settings or ServeSettings()
        spec = executable.spec
        self.executable = executable
        self._block_size = plan.block_size
        self._max_context = plan.max_context
        self._eos = frozenset(eos_token_ids)
        self._searches = BeamSearches(self._eos)
        self._clock = clock
        self._speculator = speculator
        self.adapters = AdapterTable(spec.adapters)
        self._spill: Spill | None = None
        if spill_store is not None:
            self._spill = Spill(spill_store, executable)
        self._log = log
        self._blocks = KVBlocks(
            tuple(group.window for group in spec.groups),
            plan.blocks,
            plan.block_size,
            states=spec.state_groups,
            prefix_cache=settings.prefix_cache and spec.batch_invariant,
            eviction=settings.prefix_eviction,
            spill=self._spill,
            log=log,
        )
        wanted = settings.max_sequences or spec.max_sequences
        self.scheduler: Scheduler[Request] = Scheduler(
            self._blocks,
            settings.step_rows(spec.max_rows),
            min(wanted, spec.max_sequences, spec.max_logit_rows),
            spec.max_logit_rows,
            settings.prefill_chunk,
        )
        self._metrics = EngineMetrics(
            total_blocks=plan.blocks, work=StepWorkload(self._blocks.windows)
        )
        self._next_id = 0
        self._deadlines = Deadlines()
        executable.allocate_kv(plan.blocks, plan.block_size)
        if speculator is not None:
            speculator.attach(self.scheduler)

    def take_over(self, before: Core) -> None:
        """Take the place of a core that was closed: its counters and its table of adapters go
        on."""
        self.adapters, self._metrics = before.adapters, before._metrics

    @property
    def has_work(self) -> bool:
        """Some request has not finished."""
        return bool(self.scheduler.num_running or self.scheduler.num_waiting)

    def add(self, given: CompletionInput, leader: Request | None = None) -> Request:
        """Queue one completion of a prompt of fewer tokens than the plan's max_context.

        Args:
            given: The completion.
            leader: The first of n completions of one prompt, added just before the others, which
                take over its prompt; None is none.
        """
        room, params = self._max_context - len(given.prompt), given.params
        wanted = room if params.max_tokens is None else min(room, params.max_tokens)
        request = Request(
            self._next_id,
            given,
            max_length=len(given.prompt) + wanted,
            tables=self._blocks.new_tables(),
            metrics=RequestMetrics(self._clock() if given.arrived_s is None else given.arrived_s),
            leader_id=None if leader is None else leader.id,
        )
        self._next_id += 1
        if not request.is_beam or self._searches.join(request, wanted):
            self.scheduler.add(request)
        self._deadlines.add(request)
        return request

    def cancel(self, request: Request) -> Update | None:
        """End a request; None if it has ended already."""
        return None if request.finish_reason else self._cut(request, "cancelled")

    def step(self) -> list[Update]:
        """Run one step, if there is anything to do; what it added to the requests,
        finished ones included. Those past their deadline end before it."""
        late = [self._cut(request, "deadline") for request in self._expired()]
        if len(late) == AT_ONCE and not self.scheduler.num_running:
            return late  # there may be more, which nobody should begin
        updates = late + self._step() if self.has_work else late
        if self._log is not None:
            self._log.flush()
        return updates

    def _step(self) -> list[Update]:
        begun = self._clock()
        if self._speculator and self._speculator.propose(self.scheduler.running):
            prune_drafts(self.scheduler.running)
        chunks = self.scheduler.schedule()
        if not chunks:
            raise RuntimeError("the scheduler found no rows although requests wait")
        count_queues(self._metrics, self.scheduler)
        started = self._clock()
        for chunk in chunks:
            if chunk.request.metrics.scheduled_s is None:
                chunk.request.metrics.scheduled_s = started
        draws = logit_rows_of(chunks)
        scores = scores_of(chunks, draws)
        groups = len(self._blocks.pools)
        batch = build_batch(chunks, groups, self._block_size, scores.rows, self._blocks.states)
        batch = with_states(with_adapters(batch, chunks), chunks)
        count = len(batch.logit_rows)
        masks = fill_masks(constrained(draws), count, self.executable.spec)
        logits = self.executable.step(batch)
        masks = with_rules(masks, draws, logits)
        if self._speculator:
            self._speculator.note_step(chunks)
        self._count(chunks, count, self._clock() - started)
        self.scheduler.commit(chunks)
        broken = score(self.executable, logits, scores) if scores.of else []
        searched = self._searches.advance(draws, logits, self.scheduler, self._clock())
        draws = [d for d in draws if not (d.request.is_beam or d.request.error)]
        draws, copies = self._fork(draws, started)
        scored = [d.request for d in draws if not d.request.generates]
        draws = [d for d in draws if d.request.generates]
        judged = judge(self.executable, logits, draws, masks)
        verdicts = [one.verdict for one in judged]
        if self._speculator and self._speculator.notes_rows:
            self._speculator.note_rows(last_rows(draws, verdicts))
        copies += searched.copies  # after moving, the logits are not valid any more
        move_kv(self.executable, self.scheduler.blocks, copies, draws, verdicts)
        now = self._clock()
        decodes = 0
        if self._speculator:
            decodes = sum(c.completes and c.start >= c.request.num_prompt - 1 for c in chunks)
        updates = [self._update(d, one, now) for d, one in zip(draws, judged, strict=True)]
        if self._speculator and decodes:
            rows = sum(chunk.rows for chunk in chunks)
            mixed = decodes < len(chunks) or bool(scores.of)
            self._speculator.observe_step(decodes, rows, self._clock() - begun, mixed=mixed)
        updates += [self._cut(request, "error") for request in broken]
        updates += [self._cut(request, "length") for request in scored]
        return updates + [self._cut(request, None) for request in searched.ended]

    def metrics(self) -> EngineMetrics:
        """A copy of the counters, with the present queues and free blocks. Any thread may ask."""
        return snapshot(self._metrics, self.scheduler, self._spill)

    @property
    def steps(self) -> int:
        """Calls of the executable so far."""
        return self._metrics.steps

    def requests(self) -> Iterator[Request]:
        """All requests that have not finished, oldest first."""
        return self.scheduler.requests()

    def close(self) -> None:
        """Release the engine and what drafts for it."""
        self.leave()
        self.executable.close()

    def leave(self) -> None:
        """Release all but the engine, which another core will run; again has no effect."""
        speculator, spill, log = self._speculator, self._spill, self._log
        self._speculator = self._spill = self._log = None
        if speculator is not None:
            speculator.close()
        if spill is not None:
            spill.close()
        if log is not None:
            log.close()

    def _fork(
        self, draws: list[LogitRows], started: float
    ) -> tuple[list[LogitRows], list[BlockCopy]]:
        """Add those who take over a prompt that is now computed, with the same logits."""
        forked: list[LogitRows] = []
        copies: list[BlockCopy] = []
        for draw in draws:
            if draw.request.num_output:
                continue
            for request, blocks in self.scheduler.fork(draw.request):
                request.metrics.scheduled_s = started
                forked.append(LogitRows(request, draw.first, 0))
                copies += blocks
        self._metrics.forked += len(forked)
        return draws + forked, copies

    def _count(self, chunks: Sequence[Chunk[Request]], logit_rows: int, seconds: float) -> None:
        self._metrics.count_step(chunks, logit_rows, seconds, self._blocks.available())
        if self._spill:
            self._spill.observe_step(sum(chunk.rows for chunk in chunks), len(chunks), seconds)

    def _update(self, draw: LogitRows, judged: Judged, now: float) -> Update:
        request, (verdict, best) = draw.request, judged
        if self._speculator and draw.drafted:
            checked = DraftOutcome(draw.drafted, verdict.path, best)
            count_drafts(self._metrics, request, checked)
            self._speculator.learn(request, checked)
        drawn = verdict.drawn
        if request.constraint is not None:
            drawn = request.constraint.follow(drawn, request.params)
        delta = advance(request, drawn, self._eos, now)
        count = len(delta.token_ids)
        self._metrics.output_tokens += count
        if count > len(verdict.drawn):
            for metrics in (request.metrics, self._metrics):
                metrics.forced_tokens += count - len(verdict.drawn)
        if delta.finish_reason is not None:
            self._finish(request, delta.finish_reason)
        elif verdict.accepted and self._blocks.states:
            self.scheduler.hold(request, verdict.accepted)
        elif verdict.accepted:
            self.scheduler.accept(request, verdict.accepted)
        return Update(request, delta)

    def _expired(self) -> list[Request]:
        return self._deadlines.expired(self._clock()) if self._deadlines else []

    def _cut(self, request: Request, reason: FinishReason | None) -> Update:
        """End a request with what it has; without a ``reason`` a member of a finished search."""
        if request.is_beam:
            group = self._searches.group_of(request)
            delta = group.result(request, self.scheduler, reason)
            self._metrics.output_tokens += len(delta.token_ids)
        else:
            text = request.stream.finish() if request.stream else ""
            delta = Delta(request.index, text, (), finish_reason=reason)
        self._finish(request, delta.finish_reason or "stop")
        return Update(request, delta)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        request.metrics.finished_s = self._clock()
        self._metrics.count_end(reason, request.metrics)
        if request.is_beam:  # a search removes its own beams
            self._searches.leave(request)
        else:
            self.scheduler.remove(request)
        if request.adapter is not None:
            self.adapters.release(request.adapter)
        if self._speculator:
            self._speculator.forget(request)
