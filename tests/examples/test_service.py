"""`examples/service`: streams, errors before a stream begins, clients that leave, health, metrics.

Requests go to the application as a server sends them (ASGI 3), so that a client can leave.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import optc
from optc import registry
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.runtime.support.toy import ToyExecutable

pytest.importorskip("fastapi", reason="the example needs fastapi")

FOLDER = Path(__file__).parents[2] / "examples/service"
PROMPT = "def f"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example's module, with an artifact of the toy engine."""
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    monkeypatch.setenv("OPTC_ARTIFACT", str(write_artifact(tmp_path / "model").path))
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("app", "metrics"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import app

    return app


@dataclass
class Reply:
    """The answer; the client leaves once ``leave`` says so of the bytes so far."""

    leave: Callable[[bytes], bool] = lambda _: False
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any, method: str, path: str, body: object = None, reply: Reply | None = None
) -> Reply:
    """One request to the application."""
    reply = reply or Reply()
    content = b"" if body is None else json.dumps(body).encode()
    sent = iter([{"type": "http.request", "body": content}])

    async def receive() -> dict[str, Any]:
        for message in sent:
            return message
        while not reply.leave(reply.body):
            await asyncio.sleep(0.005)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], dict(message["headers"])
        reply.body += message.get("body", b"")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    await app(scope, receive, send)
    return reply


def run(service: ModuleType, talk: Callable[[Any, optc.Engine], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with service.lifespan(service.app):
            await talk(service.app, service.app.state.engine)

    asyncio.run(asyncio.wait_for(whole(), 60))


async def idle(engine: optc.Engine) -> None:
    """Return when the engine has nothing to do."""
    while engine.health().running or engine.health().waiting:
        await asyncio.sleep(0.01)


def question(**more: object) -> dict[str, object]:
    return {"prompt": PROMPT, "max_tokens": 12, **more}


def test_a_stream_and_a_whole_answer_are_the_engines(service: ModuleType) -> None:
    async def talk(app: Any, engine: optc.Engine) -> None:
        expected = await engine.submit(PROMPT, optc.SamplingParams(temperature=0, max_tokens=12))
        streamed = await ask(app, "POST", "/stream", question())
        lines = [json.loads(line) for line in streamed.body.splitlines()]
        assert streamed.status == 200
        assert "".join(line["text"] for line in lines) == expected.text
        assert lines[-1]["finish_reason"] == expected.finish_reason
        whole = await ask(app, "POST", "/answer", question())
        assert whole.json() == {"text": expected.text, "finish_reason": expected.finish_reason}

    run(service, talk)


@pytest.mark.parametrize("path", ["/stream", "/answer"])
def test_what_is_wrong_is_said_before_a_stream_begins(service: ModuleType, path: str) -> None:
    async def talk(app: Any, engine: optc.Engine) -> None:
        reply = await ask(app, "POST", path, question(prompt="x" * 500))
        assert reply.status == 400
        assert reply.json()["kind"] == "request"
        assert (await ask(app, "POST", path, question(max_tokens=0))).status == 422

    run(service, talk)


@pytest.mark.parametrize("path", ["/stream", "/answer"])
def test_a_client_that_leaves_ends_its_request(
    service: ModuleType, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go = hold(monkeypatch, 4)

    async def talk(app: Any, engine: optc.Engine) -> None:
        asked = asyncio.create_task(
            ask(app, "POST", path, question(max_tokens=100), Reply(lambda _: reached.is_set()))
        )
        await asyncio.to_thread(reached.wait)
        await asyncio.sleep(0.1)  # the application hears of it
        go.set()
        await asked
        await idle(engine)
        assert engine.metrics().work.rows < 60, "it did not go on to its end"

    run(service, talk)


def hold(monkeypatch: pytest.MonkeyPatch, steps: int) -> tuple[threading.Event, threading.Event]:
    """The engine stops in a step: the first event says so, the second lets it go on."""
    reached, go = threading.Event(), threading.Event()
    step, count = ToyExecutable.step, 0

    def held(self: ToyExecutable, *arguments: Any, **keywords: Any) -> Any:
        nonlocal count
        count += 1
        if count == steps:
            reached.set()
            assert go.wait(30)
        return step(self, *arguments, **keywords)

    monkeypatch.setattr(ToyExecutable, "step", held)
    return reached, go


def test_a_full_queue_says_when_to_come_back(
    service: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_WAITING", 1)
    reached, go = hold(monkeypatch, 2)

    async def talk(app: Any, engine: optc.Engine) -> None:
        first = engine.submit(PROMPT)
        await asyncio.to_thread(reached.wait)
        waiting = [engine.submit(PROMPT)]
        busy = await ask(app, "POST", "/stream", question())
        ready = await ask(app, "GET", "/ready")
        health = await ask(app, "GET", "/health")
        go.set()
        await asyncio.gather(first, *waiting)
        assert (busy.status, busy.headers[b"retry-after"]) == (503, b"1")
        assert (busy.json()["kind"], ready.status, health.status) == ("busy", 503, 200)
        assert (await ask(app, "GET", "/ready")).status == 200

    run(service, talk)


def test_health_of_an_engine_that_is_closed(service: ModuleType) -> None:
    async def talk(app: Any, engine: optc.Engine) -> None:
        engine.close()
        reply = await ask(app, "GET", "/health")
        assert (reply.status, reply.json()["state"]) == (503, "closed")
        assert (await ask(app, "POST", "/answer", question())).status == 500

    run(service, talk)


def test_metrics_are_lines_that_prometheus_reads(service: ModuleType) -> None:
    async def talk(app: Any, engine: optc.Engine) -> None:
        await ask(app, "POST", "/answer", question())
        page = (await ask(app, "GET", "/metrics")).body.decode()
        name = "optc_[a-z0-9_]+"
        sample = re.compile(rf'{name}(\{{le="[^"]+"\}})? [0-9.e+-]+')
        kind = re.compile(rf"# TYPE {name} (histogram|counter|gauge)")
        for line in page.splitlines():
            assert (kind if line.startswith("#") else sample).fullmatch(line), line
        assert "optc_ttft_seconds_count 1" in page
        assert 'optc_ttft_seconds_bucket{le="+Inf"} 1' in page

    run(service, talk)
