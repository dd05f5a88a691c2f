"""Batches whose time is over, whose engine fails, and for which there is no room."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from optc.runtime.engine import Engine
from optc.runtime.tensors.engine import TensorEngine
from optc.serve.batches import runner
from optc.serve.batches.records import Batch
from optc.serve.batches.runner import Runner
from optc.serve.batches.store import Store, room
from optc.serve.models import ModelSource, ModelTable
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings
from tests.serve.tensors.toys import embedder
from tests.serve.toys import FailingExecutable, WaitingExecutable, toy_engine

URL = "/v1/completions"
FOREVER = 1 << 40


def begun(
    store: Store,
    lines: int,
    expires: int = FOREVER,
    *,
    url: str = URL,
    bodies: Sequence[dict[str, Any]] = ({"prompt": "hi", "max_tokens": 2, "ignore_eos": True},),
) -> Batch:
    texts = [
        json.dumps({"custom_id": f"c{n}", "method": "POST", "url": url, "body": body})
        for n, body in zip(range(lines), cycle(bodies), strict=False)
    ]
    file = store.add_file("a", "in", "batch", [f"{text}\n".encode() for text in texts])
    batch = Batch("batch_1", "a", url, file.id, None, 1, expires)
    store.add_batch(batch)
    return batch


def run(
    engine: Engine | TensorEngine, store: Store, until: Callable[[Batch], bool]
) -> tuple[Batch, bool]:
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


def test_a_batch_of_embeddings(tmp_path: Path) -> None:
    store = Store(tmp_path)
    bodies: list[dict[str, Any]] = [
        {"input": "abc"},
        {"input": ["a", "b"], "model": "toy"},
        {"input": ""},
    ]
    begun(store, 3, url="/v1/embeddings", bodies=bodies)
    batch, _ = run(embedder(), store, lambda one: one.ends)
    assert (batch.status, batch.completed, batch.failed) == ("completed", 2, 1)
    assert "a text is empty" in errors(store, batch)[0]["response"]["body"]["error"]["message"]
    assert batch.output is not None
    text = store.path(store.file(batch.output, "a")).read_text()
    found = {
        one["custom_id"]: one["response"]["body"] for one in map(json.loads, text.splitlines())
    }
    expected = embedder().embed(["abc"]).tolist()
    assert [one["embedding"] for one in found["c0"]["data"]] == expected
    assert len(found["c1"]["data"]) == 2
    store.close()


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


def test_a_full_disk_costs_no_line_and_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_ROOM_S", 0.01)
    store = Store(tmp_path)
    begun(store, 5)
    disk, rows = OSError(28, "No space left on device"), sqlite3.OperationalError("disk is full")
    full = iter([None, disk, None, None, rows, None, disk])
    keep, end = store.add_answer, store.end

    def add_answer(*arguments: Any, **options: Any) -> None:
        with room():
            if (error := next(full, None)) is not None:
                raise error
        keep(*arguments, **options)

    ended: list[str] = []

    def end_later(batch: Batch, status: str) -> Batch:
        ended.append(status)
        with room():
            if len(ended) < 3:
                raise OSError(28, "No space left on device")
        return end(batch, status)

    monkeypatch.setattr(store, "add_answer", add_answer)
    monkeypatch.setattr(store, "end", end_later)
    batch, _ = run(toy_engine(), store, lambda one: one.ends)
    assert (batch.status, batch.completed, batch.failed) == ("completed", 5, 0)
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
