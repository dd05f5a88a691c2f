"""The OpenAPI document: each route, and schemas that resolve and that requests fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from optc.serve.app import _ROUTES
from optc.serve.routes.unsupported import REASONS
from tests.serve.conftest import Api

NOT_LISTED = {
    *("/", "/openapi.json", "/v1/models/{name:path}", *REASONS),
    *("/v1/responses/{name}", "/v1/responses/{name}/cancel"),
    *("/v1/files/{name}", "/v1/files/{name}/content"),
    *("/v1/batches/{name}", "/v1/batches/{name}/cancel"),
    *("/v2/models/{name:path}", "/v2/models/{name:path}/ready", "/v2/models/{name:path}/infer"),
}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def test_it_names_every_route(api: Api) -> None:
    document = api.http.get("/openapi.json").json()
    assert set(document["paths"]) == {route.path for route in _ROUTES} - NOT_LISTED
    for reference in references(document):
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


@pytest.mark.parametrize(
    ("name", "body", "fits"),
    [
        ("CompletionBody", {"prompt": "hi", "made_up": 1}, True),
        ("CompletionBody", {"prompt": [[1, 2]]}, True),
        ("CompletionBody", {"prompt": 1}, False),
        ("ChatBody", {"messages": [{"role": "user", "content": "hi"}]}, True),
        ("ChatBody", {"messages": [{"content": "hi"}]}, False),
    ],
)
def test_schemas_are_those_of_bodies(api: Api, name: str, body: Any, fits: bool) -> None:
    document = api.http.get("/openapi.json").json()
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    assert jsonschema.Draft202012Validator(schema).is_valid(body) is fits
