"""A line for each request: what it cost, and nothing of what it said."""

from __future__ import annotations

import json

import pytest

from optc.serve.settings import HTTPSettings
from tests.serve.conftest import Api, MakeApi

SECRET = "the launch code"


def test_a_line_says_what_a_request_cost(api: Api) -> None:
    body = {"prompt": SECRET, "max_tokens": 4, "ignore_eos": True}
    api.post("/v1/completions", **body)
    api.stream("/v1/completions", **body)
    api.error("/v1/completions", **{**body, "n": 0})
    api.http.get(f"/{SECRET}" * 100)
    whole, stream, wrong, nothing = api.log
    for line, streams in ((whole, False), (stream, True)):
        assert (line["method"], line["path"], line["status"]) == ("POST", "/v1/completions", 200)
        assert (line["model"], line["stream"]) == ("toy", streams)
        assert (line["prompt_tokens"], line["completion_tokens"]) == (len(SECRET), 4)
    assert wrong["status"] == 400
    assert (nothing["status"], len(nothing["path"])) == (404, 256)
    assert SECRET not in json.dumps(api.log[:3])


def test_keys_are_in_no_line(make_api: MakeApi) -> None:
    api = make_api(settings=HTTPSettings(keys=("sk-secret",)))
    for key in ("sk-secret", "sk-wrong"):
        api.http.get("/v1/models", headers={"authorization": f"Bearer {key}"})
    text = json.dumps(api.log)
    assert "sk-" not in text
    assert [("key" in line) for line in api.log] == [True, False]


@pytest.mark.parametrize("given", ["abc-1", "trace:00/9=", "x" * 128])
def test_ids_are_taken_over(api: Api, given: str) -> None:
    answer = api.http.get("/health", headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == given == api.log[-1]["request_id"]


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, 'a"b', "é"])
def test_other_ids_are_made_anew(api: Api, given: str) -> None:
    headers = {"x-request-id": given.encode("latin-1")}
    found = api.http.get("/health", headers=headers).headers["x-request-id"]
    assert found != given
    assert found.startswith("req-")
    assert api.http.get("/health").headers["x-request-id"] != found
