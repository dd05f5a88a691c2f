"""`JoinedTexts`: texts of several requests become vectors in one call."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from optc.runtime.tensors.embedder import Embedded, Embedder
from optc.serve.tensors.work_queue import WorkQueue

#: Texts of one call: more would hold those up that come meanwhile.
_MOST = 64


@dataclass(eq=False)
class _Asked:
    """Texts of a request, and what they are embedded as."""

    texts: Sequence[str]
    found: Embedded | None = None


class JoinedTexts:
    """Embeds texts of requests that wait at the same time together, where that changes no bit.

    Each request waits for its turn. Who has it takes the texts of those behind along; they find
    their vectors when their own turn comes.

    Args:
        embedder: Computes the vectors.
        queue: Of the calls of its engine.
    """

    def __init__(self, embedder: Embedder, queue: WorkQueue) -> None:
        self._embedder, self._queue = embedder, queue
        self._waiting: deque[_Asked] = deque()
        self._lock = Lock()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Vectors f32[texts, D], and how many tokens each text has.

        Raises:
            APIError: As of `WorkQueue.run`.
        """
        asked = _Asked(texts)
        if not self._embedder.batch_invariant:
            return await self._queue.run(lambda: self._turn(asked))
        with self._lock:
            self._waiting.append(asked)
        try:
            return await self._queue.run(lambda: self._turn(asked))
        finally:
            self._withdraw(asked)  # whose client has left

    def _turn(self, asked: _Asked) -> Embedded:
        if asked.found is None:
            together = self._along(asked)
            every = [text for one in together for text in one.texts]
            vectors, counts = self._embedder.embed_counted(every)
            at = 0
            for one in together:
                end = at + len(one.texts)
                one.found = Embedded(vectors[at:end], counts[at:end])
                at = end
        assert asked.found is not None
        return asked.found

    def _along(self, asked: _Asked) -> list[_Asked]:
        """The request and those behind it whose texts fit into the same call."""
        self._withdraw(asked)
        found, count = [asked], len(asked.texts)
        with self._lock:
            while self._waiting and count + len(self._waiting[0].texts) <= _MOST:
                found.append(self._waiting.popleft())
                count += len(found[-1].texts)
        return found

    def _withdraw(self, asked: _Asked) -> None:
        with self._lock:
            if asked in self._waiting:
                self._waiting.remove(asked)
