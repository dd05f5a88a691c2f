"""`Call`: one request on its way to a replica and back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from optc.runtime.outputs import Completion, Delta
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.submitting.submission import Submission
from optc.serve.replicas.wire import Ended

#: A deadline that has passed on the way ends a request at its first step.
_SOONEST_S = 1e-3


@dataclass
class _Part:
    """One completion as far as it has come."""

    delta: Delta | None = None
    times_s: list[float] = field(default_factory=list)
    ended_s: float | None = None

    def add(self, delta: Delta, now_s: float) -> None:
        """More of it has come."""
        self.delta = delta if self.delta is None else self.delta.joined(delta)
        self.times_s += [now_s] * len(delta.token_ids)
        if delta.finish_reason is not None:
            self.ended_s = now_s


class Call:
    """Gives what comes of a request to its handle. Times are those at which it came here: clocks of
    other machines are others.

    Args:
        submission: The request.
        hashes: Of the blocks of its prompt.
    """

    def __init__(self, submission: Submission, hashes: Sequence[int]) -> None:
        self.submission = submission
        self.hashes = hashes
        self.tokens = len(submission.prompt)
        self._parts = [_Part() for _ in range(submission.completions)]

    @property
    def request(self) -> GenerationRequest:
        """The request as a replica gets it: its prompt encoded, its defaults stated."""
        ends_s = self.submission.ends_s
        left_s = None if ends_s is None else max(_SOONEST_S, ends_s - time.perf_counter())
        prompt = self.submission.handle.prompt_token_ids
        return replace(self.submission.request, prompt=prompt, deadline_s=left_s)

    def add(self, deltas: Sequence[Delta]) -> None:
        """Some of the answer has come."""
        now_s = time.perf_counter()
        for delta in deltas:
            self._parts[delta.index].add(delta, now_s)
            self.submission.handle.push(delta)

    def finish(self, ended: Ended) -> list[Completion]:
        """All of it has come; gives the completions with the times of here."""
        done = [replace(one, metrics=self._metrics(one)) for one in ended.completions]
        for one in done:
            self.submission.handle.finish(one, ended.scored)
        return done

    def cancel(self) -> list[Completion]:
        """End it with what has come; gives the completions."""
        handle, found = self.submission.handle, []
        for index, part in enumerate(self._parts):
            delta = part.delta or Delta(index, "", ())
            last = Delta(index, "", (), finish_reason="cancelled")
            if delta.finish_reason is None:
                handle.push(last)
                delta = delta.joined(last)
            asked = self.submission.request.params.logprobs is not None
            metrics = RequestMetrics(self.submission.arrived_s, None, part.times_s)
            metrics.finished_s = part.ended_s or time.perf_counter()
            one = Completion(
                index,
                delta.text,
                delta.token_ids,
                delta.finish_reason or "cancelled",
                delta.logprobs if asked else None,
                metrics,
            )
            handle.finish(one)
            found.append(one)
        return found

    def _metrics(self, one: Completion) -> RequestMetrics:
        there, part = one.metrics, self._parts[one.index]
        arrived_s = self.submission.arrived_s
        waited_s = there.queue_s
        return replace(
            there,
            arrived_s=arrived_s,
            scheduled_s=None if waited_s is None else arrived_s + waited_s,
            token_times_s=part.times_s,
            finished_s=part.ended_s or time.perf_counter(),
        )
