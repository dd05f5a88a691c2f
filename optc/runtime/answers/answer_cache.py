"""`AnswerCache`: answers of requests that would be answered alike again.

An engine whose outputs do not depend on the batch gives the same tokens to the same prompt,
parameters and seed, whatever else runs. So an answer may be kept, and given again, exactly.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING

from optc.runtime.outputs import Completion, Delta, RequestOutput
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.submitting.submission import Submission

if TYPE_CHECKING:
    from optc.runtime.engine_info import EngineInfo

#: Answers that ended otherwise would end otherwise again.
_BY_ITSELF = frozenset({"stop", "length"})
#: Bytes that objects take, about: of an answer, a token, a log-probability.
_ANSWER, _TOKEN, _LOGPROB = 1024, 36, 120


@dataclass(frozen=True)
class _Kept:
    """An answer: its completions, and the bytes that it takes."""

    completions: tuple[Completion, ...]
    size: int


class AnswerCache:
    """Finished answers in bounded memory; those least recently asked for go first. Threads and
    signal handlers may use it.

    Args:
        most_bytes: That they may take.

    Attributes:
        lookups: Requests that could have been answered from it.
        hits: Those of them that were.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._size = 0
        self._lock = RLock()
        self.lookups = 0
        self.hits = 0

    def answer(self, submission: Submission, served_by: EngineInfo | None = None) -> bool:
        """Answer a request if that is known; else its answer is kept once there is one.

        Args:
            submission: The request.
            served_by: Whose answers count: the artifact's that is loaded now. Another one may have
                taken its place before the request's first step.

        Returns:
            True if it has been answered: its handle has ended.
        """
        key = self._key(submission)
        if key is None:
            return False
        with self._lock:
            self.lookups += 1
            kept = self._kept.get(known := _of(served_by) + key)
            if kept is not None:
                self.hits += 1
                self._kept.move_to_end(known)
        if kept is None:
            # Not once it is done: who has the answer may ask again at once.
            submission.handle.before_end = lambda handle, output: self._keep(
                key, output, handle.served_by
            )
            return False
        submission.handle.served_by = served_by
        _replay(kept.completions, submission)
        return True

    def _key(self, submission: Submission) -> bytes | None:
        """A digest of what an answer follows from; None where it would be another one each time."""
        request = submission.request
        params = request.params
        repeats = params.greedy or params.beam_width is not None or params.seed is not None
        if not repeats or params.prompt_logprobs is not None:
            return None
        digest = hashlib.sha256(submission.prompt.tobytes())
        # Each of them shows all that it is; an adapter shows which one of its name.
        shown = repr((request.salt, submission.adapter, params, params.structure))
        digest.update(shown.encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _keep(self, key: bytes, output: RequestOutput, served_by: EngineInfo | None) -> None:
        kept = _kept(output)
        if kept is None or kept.size > self._most:
            return
        key = _of(served_by) + key
        with self._lock:
            before = self._kept.pop(key, None)
            self._size += kept.size - (0 if before is None else before.size)
            self._kept[key] = kept
            while self._size > self._most:
                _, oldest = self._kept.popitem(last=False)
                self._size -= oldest.size


def _of(served_by: EngineInfo | None) -> bytes:
    """Tells answers of one artifact from those of another."""
    return b"" if served_by is None else served_by.digest.encode()


def _kept(output: RequestOutput) -> _Kept | None:
    """The answer of a request that has ended, if it ended by itself."""
    if any(one.finish_reason not in _BY_ITSELF for one in output.completions):
        return None
    return _Kept(output.completions, _ANSWER + sum(map(_bytes, output.completions)))


def _bytes(one: Completion) -> int:
    logprobs = sum(1 + len(entry.top) for entry in one.logprobs or ())
    return 4 * len(one.text) + _TOKEN * len(one.token_ids) + _LOGPROB * logprobs


def _replay(completions: tuple[Completion, ...], submission: Submission) -> None:
    """End a request with these completions, which take no time."""
    handle, now_s = submission.handle, time.perf_counter()
    cached = len(handle.prompt_token_ids)
    for one in completions:
        times = [now_s] * len(one.token_ids)
        metrics = RequestMetrics(submission.arrived_s, now_s, times, now_s, cached_tokens=cached)
        logprobs = one.logprobs or ()
        handle.push(Delta(one.index, one.text, one.token_ids, logprobs, one.finish_reason))
        handle.finish(replace(one, metrics=metrics))
