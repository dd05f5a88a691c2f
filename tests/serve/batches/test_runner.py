"""Batches whose time is over, whose engine fails, and for which there is no room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from optc.runtime.engine import Engine
from optc.serve.batches.records import Batch
from optc.serve.batches.runner import Runner
from optc.serve.batches.store import Store
from optc.serve.models import ModelSource, ModelTable
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings
from tests.serve.toys import FailingExecutable, WaitingExecutable, toy_engine

URL = "/v1/completions"
FOREVER = 1 << 40


def begun(store: Store, lines: int, expires: int = FOREVER) -> Batch:
    body = {"prompt": "hi", "max_tokens": 2, "ignore_eos": True}
    texts = [
        json.dumps({"custom_id": f"c{n}", "method": "POST", "url": URL, "body": body})
        for n in range(lines)
    ]
    file = store.add_file("a", "in", "batch", [f"{text}\n".encode() for text in texts])
    batch = Batch("batch_1", "a", URL, file.id, None, 1, expires)
    store.add_batch(batch)
    return batch


def run(engine: Engine, store: Store, until: Callable[[Batch], bool]) -> tuple[Batch, bool]:
    """The batch once ``until`` says so or the runner has ended, and whether it has."""
    table = ModelTable([ModelSource("toy", lambda: engine)])
    table.load()

    async def main() -> tuple[Batch, bool]:
        running = asyncio.create_task(Runner(Service(table, HTTPSettings()), store).run())
        while not running.done() and not until(store.batch("batch_1")):
            await asyncio.sleep(0.01)
        ended = running.done()
        running.cancel()
        await asyncio.wait([running])
        return store.batch("batch_1"), ended

    try:
        return asyncio.run(main())
    finally:
        table.close()


def errors(store: Store, batch: Batch) -> list[dict[str, Any]]:
    assert batch.errors is not None
    text = store.path(store.file(batch.errors, "a")).read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_batch_whose_time_is_over_says_so_in_its_lines(tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun(store, 3, expires=1)
    batch, _ = run(toy_engine(), store, lambda one: one.ends)
    assert (batch.status, batch.output, batch.failed) == ("expired", None, 3)
    assert {one["error"]["code"] for one in errors(store, batch)} == {"batch_expired"}
    store.close()


def test_an_engine_that_fails_costs_no_line(tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun(store, 12)
    failing = toy_engine(lambda: FailingExecutable(4))
    batch, ended = run(failing, store, lambda one: one.ends)
    assert ended, "the runner waits for the next start"
    assert (batch.status, batch.failed) == ("in_progress", 0)
    assert batch.completed < 12
    batch, _ = run(toy_engine(), store, lambda one: one.ends)
    assert (batch.status, batch.completed, batch.failed) == ("completed", 12, 0)
    store.close()


def test_lines_wait_for_room(tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun(store, 12)
    made = []

    def executable() -> WaitingExecutable:
        made.append(WaitingExecutable())
        made[0].let_go()
        return made[0]

    batch, _ = run(toy_engine(executable, max_waiting=1), store, lambda one: one.ends)
    assert (batch.status, batch.completed, batch.failed) == ("completed", 12, 0)
    store.close()
