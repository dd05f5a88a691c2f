"""Requests that Schemathesis makes of the OpenAPI document: none is answered by a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")
pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from starlette.testclient import TestClient

from optc.serve.app import make_app
from optc.serve.batches.store import Store
from optc.serve.models import ModelSource, ModelTable
from optc.serve.openapi import document
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings, Limits
from tests.serve.tensors.toys import embedder
from tests.serve.toys import toy_engine

OPERATIONS = [(method, path) for path, methods in document()["paths"].items() for method in methods]
#: Parts of a request that the client takes as they are.
PARTS = frozenset({"method", "url", "json", "data", "files", "params"})


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Asks a server with all that may be turned on."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "models" / "other").mkdir(parents=True)
    table = ModelTable(
        [ModelSource("toy", toy_engine), ModelSource("embedder", embedder)],
        lambda path: toy_engine(),
    )
    table.load()
    given = HTTPSettings(
        admin_keys=("sk-admin",),
        admin_folder=folder / "models",
        limits=Limits(new_tokens=2, completions=4),
    )
    store = Store(folder / "state")
    with TestClient(make_app(Service(table, given), store=store)) as client:
        client.headers["authorization"] = "Bearer sk-admin"
        yield client
    table.close()
    store.close()


@pytest.fixture(scope="module")
def schema() -> Any:
    return schemathesis.openapi.from_dict(document())


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_nothing_is_the_servers_fault(
    http: TestClient, schema: Any, method: str, path: str
) -> None:
    _ask(http, schema[path][method], 4)


@pytest.mark.long
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_nothing_is_the_servers_fault_of_many(
    http: TestClient, schema: Any, method: str, path: str
) -> None:
    _ask(http, schema[path][method], 150)


def _ask(http: TestClient, operation: Any, examples: int) -> None:
    """Make so many requests of an operation. What the server raises is raised here."""
    reached = []

    @seed(53)
    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # to make a failing one smaller takes minutes
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any) -> None:
        whole = case.as_transport_kwargs(base_url=str(http.base_url))
        parts = {key: one for key, one in whole.items() if key in PARTS}
        if parts.get("files"):
            parts["files"] = [(name, _sent(value)) for name, value in parts["files"]]
        answer = http.request(**parts)
        reached.append(answer.status_code)
        assert answer.status_code < 500, f"{case.body}: {answer.text}"

    check()
    assert reached


def _sent(value: Any) -> Any:
    """A field of a form as clients can send it: they have texts and bytes, no numbers."""
    if isinstance(value, tuple):
        name, content, *rest = value
        return (name, _sent(content), *rest)
    return value if isinstance(value, str | bytes) or hasattr(value, "read") else str(value)
