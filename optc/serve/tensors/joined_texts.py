"""`JoinedTexts`: texts of several requests become vectors in one call."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt

from optc.runtime.tensors.embedder import Embedder
from optc.serve.tensors.work_queue import WorkQueue

Float32 = npt.NDArray[np.float32]
#: Texts of one call: more would hold those up that come meanwhile.
_MOST = 64


@dataclass(eq=False)
class _Asked:
    """Texts of a request, and their vectors once they are computed."""

    texts: Sequence[str]
    vectors: Float32 | None = None


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

    async def embed(self, texts: Sequence[str]) -> Float32:
        """Vectors f32[texts, D].

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

    def _turn(self, asked: _Asked) -> Float32:
        if asked.vectors is None:
            together = self._along(asked)
            every = [text for one in together for text in one.texts]
            vectors = self._embedder.embed(every)
            at = 0
            for one in together:
                one.vectors = vectors[at : at + len(one.texts)]
                at += len(one.texts)
        assert asked.vectors is not None
        return asked.vectors

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
