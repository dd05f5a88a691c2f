"""Every route but the probes needs a key."""

from __future__ import annotations

import pytest

from optc.serve.app import _ROUTES
from optc.serve.guards.keys import OPEN
from optc.serve.settings import HTTPSettings
from tests.serve.conftest import MakeApi

KEYS = ("sk-one", "sk-two")
RIGHT = [
    {"authorization": "Bearer sk-one"},
    {"authorization": "bearer  sk-two "},
    {"x-api-key": "sk-two"},
]
WRONG = [
    {},
    {"authorization": "sk-one"},
    {"authorization": "Basic sk-one"},
    {"authorization": "Bearer sk-three"},
    {"authorization": "Bearer sk-one sk-two"},
    {"authorization": "Bearer "},
    {"authorization": b"Bearer \xff"},
    {"x-api-key": "sk-"},
]


@pytest.mark.parametrize("headers", WRONG)
def test_no_key_and_wrong_keys_open_nothing_but_the_probes(
    make_api: MakeApi, headers: dict[str, str]
) -> None:
    api = make_api(settings=HTTPSettings(keys=KEYS))
    paths = [(route.path, "POST" in (route.methods or ())) for route in _ROUTES]
    assert {path for path, _ in paths} > OPEN
    for path, posts in [*paths, ("/nothing", False)]:
        answer = api.http.request("POST" if posts else "GET", path, headers=headers)
        assert answer.status_code == (200 if path in OPEN else 401), path
        if path not in OPEN:
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "no valid key" in answer.json()["error"]["message"]


@pytest.mark.parametrize("headers", RIGHT)
def test_each_key_opens_all(make_api: MakeApi, headers: dict[str, str]) -> None:
    api = make_api(settings=HTTPSettings(keys=KEYS))
    assert api.http.get("/v1/models", headers=headers).status_code == 200
    body = {"prompt": "hi", "max_tokens": 1}
    assert api.http.post("/v1/completions", json=body, headers=headers).status_code == 200


def test_requests_of_two_keys_share_no_prefix(make_api: MakeApi) -> None:
    api = make_api(settings=HTTPSettings(keys=KEYS))
    body = {"prompt": "a prompt that is long enough for blocks " * 3, "max_tokens": 2}

    def cached(key: str, **more: str) -> int:
        headers = {"authorization": f"Bearer {key}"}
        answer = api.http.post("/v1/completions", json={**body, **more}, headers=headers)
        found: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    assert cached("sk-one") == 0
    assert cached("sk-one") > 0
    assert cached("sk-two") == 0
    assert cached("sk-one", cache_salt="x") == 0
    assert cached("sk-two") > 0
