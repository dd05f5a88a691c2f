"""`Core`: schedule -> execute -> sample -> update, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from optc.errors import RequestError
from optc.runtime.batch import build_batch
from optc.runtime.detokenize import TextStream
from optc.runtime.executable import Executable, Float32, Int32
from optc.runtime.kv_blocks import BlockCopy, KVBlocks
from optc.runtime.kv_plan import KVPlan
from optc.runtime.metrics import EngineMetrics, RequestMetrics
from optc.runtime.outputs import Delta, FinishReason
from optc.runtime.params import SamplingParams
from optc.runtime.request import Request
from optc.runtime.sampler import Row, Sampled, sample
from optc.runtime.scheduler import Chunk, Scheduler


class Update(NamedTuple):
    """What happened to one request in a step."""

    request: Request
    delta: Delta


class Core:
    """A loaded engine with its KV blocks and its requests. Not thread-safe.

    Args:
        executable: The engine; its KV pools are allocated here.
        plan: Sizes of the KV pools.
        eos_token_ids: Tokens that end a text.
        token_budget: Most rows of one step; at most the engine's own limit.
        prefix_cache: Keep the keys and values of prefixes for later requests. Without effect on
            engines that are not batch-invariant, where it would change results.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self,
        executable: Executable,
        plan: KVPlan,
        *,
        eos_token_ids: Iterable[int] = (),
        token_budget: int,
        prefix_cache: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        spec = executable.spec
        self.executable = executable
        self._block_size = plan.block_size
        self._max_context = plan.max_context
        self._eos = frozenset(eos_token_ids)
        self._clock = clock
        self._blocks = KVBlocks(
            tuple(group.window for group in spec.groups),
            plan.blocks,
            plan.block_size,
            prefix_cache=prefix_cache and spec.batch_invariant,
        )
        self.scheduler: Scheduler[Request] = Scheduler(
            self._blocks,
            min(token_budget, spec.max_rows),
            min(spec.max_sequences, spec.max_logit_rows),
        )
        self._metrics = EngineMetrics(total_blocks=plan.blocks)
        self._next_id = 0
        executable.allocate_kv(plan.blocks, plan.block_size)

    @property
    def has_work(self) -> bool:
        """Some request has not finished."""
        return bool(self.scheduler.num_running or self.scheduler.num_waiting)

    def add(
        self,
        prompt: Int32,
        params: SamplingParams,
        *,
        seed: int,
        index: int = 0,
        stream: TextStream | None = None,
        arrived_s: float | None = None,
        salt: str = "",
        leader: Request | None = None,
    ) -> Request:
        """Queue one completion of a valid prompt (1 <= n < the plan's max_context tokens).

        Requests of different ``salt`` share no cached prefixes. ``leader`` is the first of n
        completions of one prompt, added just before the others, which take over its prompt.
        """
        room = self._max_context - len(prompt)
        wanted = room if params.max_tokens is None else min(room, params.max_tokens)
        request = Request(
            self._next_id,
            prompt,
            params,
            seed=seed,
            index=index,
            max_length=len(prompt) + wanted,
            tables=self._blocks.new_tables(),
            metrics=RequestMetrics(self._clock() if arrived_s is None else arrived_s),
            stream=stream,
            salt=salt,
            leader_id=None if leader is None else leader.id,
        )
        self._next_id += 1
        self.scheduler.add(request)
        return request

    def cancel(self, request: Request) -> Update | None:
        """End a request; None if it has ended already."""
        if request.finish_reason is not None:
            return None
        text = request.stream.finish() if request.stream else ""
        self._finish(request, "cancelled")
        return Update(request, Delta(request.index, text, (), finish_reason="cancelled"))

    def step(self) -> list[Update]:
        """Run one step; what it added to the requests, finished ones included."""
        chunks = self.scheduler.schedule()
        if not chunks:
            raise RuntimeError("the scheduler found no rows although requests wait")
        self._count_queues()
        started = self._clock()
        for chunk in chunks:
            if chunk.request.metrics.scheduled_s is None:
                chunk.request.metrics.scheduled_s = started
        batch = build_batch(chunks, len(self._blocks.pools), self._block_size)
        logits = self.executable.step(batch)
        self._count(chunks, self._clock() - started)
        self.scheduler.commit(chunks)
        done = [chunk.request for chunk in chunks if chunk.request.num_pending == 0]
        logits, done, copies = self._fork(logits, done, started)
        sampled = sample(logits[: len(done)], [_row(request) for request in done])
        self._copy(copies)
        now = self._clock()
        return [self._update(r, s, now) for r, s in zip(done, sampled, strict=True)]

    def metrics(self) -> EngineMetrics:
        """A copy of the counters, with the present queues and free blocks. Any thread may ask."""
        return replace(
            self._metrics,
            finished=self._metrics.finished.copy(),
            running=self.scheduler.num_running,
            waiting=self.scheduler.num_waiting,
            free_blocks=self._blocks.available(),
            cached_blocks=tuple(pool.num_cached for pool in self._blocks.pools),
        )

    def requests(self) -> Iterator[Request]:
        """All requests that have not finished, oldest first."""
        return self.scheduler.requests()

    def _fork(
        self, logits: Float32, done: list[Request], started: float
    ) -> tuple[Float32, list[Request], list[BlockCopy]]:
        """Add those who take over a prompt that is now computed, with the same logits."""
        sources, requests, copies = list(range(len(done))), list(done), []
        for source, leader in enumerate(done):
            if leader.num_output:
                continue
            for request, blocks in self.scheduler.fork(leader):
                request.metrics.scheduled_s = started
                sources.append(source)
                requests.append(request)
                copies += blocks
        forked = len(requests) - len(done)
        self._metrics.forked += forked
        return (logits[sources] if forked else logits), requests, copies

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        """Copy parts of blocks; the step's logits are not valid afterwards."""
        size = self._block_size
        for group in sorted({copy.group for copy in copies}):
            mine = [copy for copy in copies if copy.group == group]
            slots = [
                np.concatenate([np.arange(block * size, block * size + n) for block, n in places])
                for places in (
                    [(copy.source, copy.tokens) for copy in mine],
                    [(copy.target, copy.tokens) for copy in mine],
                )
            ]
            self.executable.copy_kv(group, *(part.astype(np.int32) for part in slots))

    def _count_queues(self) -> None:
        for request in self.scheduler.preempted:
            request.metrics.preemptions += 1
            self._metrics.preemptions += 1
        for request in self.scheduler.admitted:
            request.metrics.cached_tokens += request.num_computed
            self._metrics.prefix_hit_tokens += request.num_computed
            self._metrics.prefix_lookup_tokens += request.num_tokens

    def _count(self, chunks: Sequence[Chunk[Request]], seconds: float) -> None:
        self._metrics.steps += 1
        self._metrics.step_s += seconds
        self._metrics.prompt_tokens += sum(
            max(0, min(c.start + c.rows, c.request.num_prompt) - c.start) for c in chunks
        )

    def _update(self, request: Request, sampled: Sampled | None, now: float) -> Update:
        if sampled is None:
            return self._fail(request)
        request.append(sampled.token)
        request.metrics.token_times_s.append(now)
        self._metrics.output_tokens += 1
        if sampled.logprobs is not None:
            request.logprobs.append(sampled.logprobs)
        text, reason = self._advance(request, sampled.token)
        if reason is not None:
            self._finish(request, reason)
        logprobs = () if sampled.logprobs is None else (sampled.logprobs,)
        return Update(
            request, Delta(request.index, text, (sampled.token,), logprobs, finish_reason=reason)
        )

    def _advance(self, request: Request, token: int) -> tuple[str, FinishReason | None]:
        """New text of the request and whether its new token ends it."""
        stream, params = request.stream, request.params
        ends = token in params.stop_token_ids or (token in self._eos and not params.ignore_eos)
        text = stream.add(token) if stream and not ends else ""
        if ends or (stream is not None and stream.stopped):
            return text + (stream.finish() if stream else ""), "stop"
        if request.num_tokens == request.max_length:
            text += stream.finish() if stream else ""
            return text, "stop" if stream and stream.stopped else "length"
        return text, None

    def _fail(self, request: Request) -> Update:
        """End a request whose logits are no numbers; others are not concerned."""
        request.error = RequestError(
            "the model's logits hold a NaN",
            where=f"output token {request.num_output}",
            hint="the weights or the engine are broken for this input",
        )
        text = request.stream.finish() if request.stream else ""
        self._finish(request, "error")
        return Update(request, Delta(request.index, text, (), finish_reason="error"))

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        request.metrics.finished_s = self._clock()
        self._metrics.finished[reason] += 1
        self.scheduler.remove(request)


def _row(request: Request) -> Row:
    return Row(request.params, request.seed, request.index, request.tokens, request.num_prompt)
