from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from starlette.testclient import TestClient

from optc.runtime.engine import Engine
from optc.serve.app import make_app
from optc.serve.models import ModelSource, ModelTable
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings
from tests.serve.toys import toy_engine


@dataclass
class Api:
    """A server in this process.

    Attributes:
        http: Asks it.
        service: What it serves.
        engine: Of its first model.
        log: Lines of its access log.
    """

    http: TestClient
    service: Service
    engine: Engine
    log: list[dict[str, Any]]

    def post(self, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
        """The answer to a body."""
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def error(self, path: str, status: int = 400, **body: Any) -> dict[str, Any]:
        """The error of a body."""
        found: dict[str, Any] = self.post(path, status, **body)["error"]
        return found

    def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The chunks of a stream, which ends as it should."""
        answer = self.http.post(path, json={**body, "stream": True})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        *events, done, end = answer.text.split("\n\n")
        assert (done, end) == ("data: [DONE]", "")
        data = [one for one in events if not one.startswith(":")]
        assert all(one.startswith("data: ") for one in data)
        return [json.loads(one.removeprefix("data: ")) for one in data]


MakeApi = Callable[..., Api]


@pytest.fixture
def make_api() -> Iterator[MakeApi]:
    """Makes servers of engines, by name; those that are not given are the toy."""
    tables = []

    def make(
        engines: Mapping[str, Any] | None = None,
        settings: HTTPSettings | None = None,
        *,
        load: bool = True,
        places: int | None = None,
    ) -> Api:
        given = engines or {"toy": toy_engine()}
        sources = [ModelSource(name, lambda one=one: one) for name, one in given.items()]
        table = ModelTable(sources, places=places)
        tables.append(table)
        if load:
            table.load()
        service = Service(table, settings or HTTPSettings())
        log: list[dict[str, Any]] = []
        app = make_app(service, lambda line: log.append(json.loads(line)))
        first = cast(Engine, next(iter(given.values())))
        return Api(TestClient(app), service, first, log)

    yield make
    for table in tables:
        table.close()


@pytest.fixture
def api(make_api: MakeApi) -> Api:
    """A server of the toy."""
    return make_api()
