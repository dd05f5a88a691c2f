"""Texts of requests that wait together are computed together, if that changes no bit."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from optc.errors import EngineError
from optc.runtime.tensors.embedder import Embedded
from optc.serve.tensors.joined_texts import JoinedTexts
from optc.serve.tensors.work_queue import WorkQueue
from tests.serve.tensors.toys import Powers, embedder

LISTS = [["a"], ["b", "cd"], ["e" * 5], ["abc", "f", "g"]]


async def waiting(queue: WorkQueue, count: int) -> None:
    while queue.waiting + queue.running < count:
        await asyncio.sleep(0)


@pytest.mark.parametrize("invariant", [True, False])
def test_those_behind_are_taken_along(invariant: bool) -> None:
    async def main() -> None:
        powers = Powers(batch_invariant=invariant)
        engine, queue = embedder(powers), WorkQueue()
        joined = JoinedTexts(engine, queue)
        powers.may_go.clear()
        tasks = [asyncio.create_task(joined.embed(texts)) for texts in LISTS]
        await waiting(queue, len(LISTS))
        powers.may_go.set()
        found = await asyncio.gather(*tasks)
        for one, texts in zip(found, LISTS, strict=True):
            vectors, counts = embedder().embed_counted(texts)
            np.testing.assert_array_equal(one.vectors, vectors)
            assert one.token_counts == counts
        # The first may have begun before the others came.
        if invariant:
            assert sum(powers.batches) == 7
            assert len(powers.batches) <= 2
        else:
            assert powers.batches == [len(texts) for texts in LISTS]
        assert not joined._waiting

    asyncio.run(main())


def test_who_leaves_is_not_taken_along_and_long_requests_run_alone() -> None:
    async def main() -> None:
        powers = Powers()
        queue = WorkQueue()
        joined = JoinedTexts(embedder(powers), queue)
        powers.may_go.clear()
        first = asyncio.create_task(joined.embed(["a"]))
        while not queue.running:
            await asyncio.sleep(0)
        gone = asyncio.create_task(joined.embed(["b"]))
        long = asyncio.create_task(joined.embed(["c"] * 64))
        last = asyncio.create_task(joined.embed(["d"]))
        await waiting(queue, 4)
        gone.cancel()
        await asyncio.wait([gone])
        powers.may_go.set()
        await asyncio.gather(first, long, last)
        assert sum(powers.batches) == 66
        assert len(joined._waiting) == 0

    asyncio.run(main())


def test_a_failure_is_of_the_request_that_had_the_turn() -> None:
    class Failing(Powers):
        def run(self, inputs: object) -> dict[str, np.ndarray]:
            self.batches.append(0)
            if len(self.batches) == 1:
                self.may_go.wait()
                raise EngineError("once", where="toy")
            return super().run(inputs)  # type: ignore[arg-type]

    async def main() -> None:
        failing = Failing()
        queue = WorkQueue()
        joined = JoinedTexts(embedder(failing), queue)
        failing.may_go.clear()
        tasks = [asyncio.create_task(joined.embed([text])) for text in "abc"]
        await waiting(queue, 3)
        failing.may_go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], EngineError)
        for one, text in zip(found[1:], "bc", strict=True):
            assert isinstance(one, Embedded)
            np.testing.assert_array_equal(one.vectors, embedder().embed([text]))

    asyncio.run(main())
