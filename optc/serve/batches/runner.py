"""`Runner`: answers batches, one after the other, while the server has time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from optc.serve.api_errors import NO_ROOM, APIError
from optc.serve.batches.answer import answer_line
from optc.serve.batches.lines import Line, check_lines, read_lines
from optc.serve.batches.records import Batch
from optc.serve.batches.store import Store
from optc.serve.service import Service
from optc.system.logs.logger import logger

_LOG = logger(__name__)
#: Lines that are answered at once: enough that steps are full while nobody else asks.
AHEAD = 32
#: How often it looks for a batch.
_LOOK_S = 0.2
#: How often it tries again where the disk is full.
_ROOM_S = 10.0


class Runner:
    """Answers the batches of a store.

    Args:
        service: Who answers.
        store: Where they are.
    """

    def __init__(self, service: Service, store: Store) -> None:
        self._service = service
        self._store = store

    async def run(self) -> None:
        """Answer batches until it is cancelled, or the server stops."""
        while not self._service.draining:
            batch = await asyncio.to_thread(self._store.unfinished)
            if batch is None:
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                await self._advance(batch)
            except APIError as error:
                if error.status == NO_ROOM:
                    _LOG.warning("batch %s waits for room: %s", batch.id, error.message)
                    await asyncio.sleep(_ROOM_S)
                    continue
                # the server stops, or its engine failed
                _LOG.warning("batch %s waits for the next start: %s", batch.id, error.message)
                return

    async def _advance(self, batch: Batch) -> None:
        """Do what a batch needs next."""
        store = self._store
        if batch.status == "validating":
            await asyncio.to_thread(self._validate, batch)
        elif batch.status == "cancelling":
            await asyncio.to_thread(store.end, batch, "cancelled")
        elif batch.status == "finalizing":
            await asyncio.to_thread(store.end, batch, "completed")
        elif batch.expires <= time.time():
            await asyncio.to_thread(self._expire, batch)
        else:
            await self._answer(batch)

    def _validate(self, batch: Batch) -> None:
        total, wrong = check_lines(self._store.input(batch), batch.endpoint)
        status = "failed" if wrong else "in_progress"
        self._store.change(batch.id, status, of=("validating",), total=total, wrong=wrong)

    def _expire(self, batch: Batch) -> None:
        for line in self._left(batch):
            error = {"code": "batch_expired", "message": "the batch's time was over before"}
            answer = {"id": f"batch_req_{line.number}", "custom_id": line.custom_id}
            self._store.add_answer(
                batch.id, line.number, {**answer, "response": None, "error": error}, failed=True
            )
        self._store.end(batch, "expired")

    async def _answer(self, batch: Batch) -> None:
        """Answer lines until none is left, or the batch is cancelled or expires."""
        lines = await asyncio.to_thread(self._left, batch)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                while len(running) < AHEAD and (line := next(lines, None)) is not None:
                    running.add(asyncio.create_task(self._answer_line(batch, line)))
                if not running:
                    break
                done, running = await asyncio.wait(
                    running, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED
                )
                failed = [one for one in [task.exception() for task in done] if one is not None]
                if failed:
                    raise failed[0]
                now = await asyncio.to_thread(self._store.batch, batch.id)
                if now.status != "in_progress" or now.expires <= time.time():
                    return
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        await asyncio.to_thread(self._store.change, batch.id, "finalizing", of=("in_progress",))

    async def _answer_line(self, batch: Batch, line: Line) -> None:
        answer, failed = await answer_line(self._service, batch.endpoint, line, batch.salt)
        await asyncio.to_thread(
            self._store.add_answer, batch.id, line.number, answer, failed=failed
        )

    def _left(self, batch: Batch) -> Iterator[Line]:
        """The lines that have no answer."""
        answered = self._store.answered(batch.id)
        lines = read_lines(self._store.input(batch), batch.endpoint)
        return (one for one in lines if one.number not in answered)
