"""Receipts of what clients ask a server in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from optc.errors import InputError
from optc.runtime.receipts.log_file import read_receipts
from optc.runtime.receipts.receipt import Receipt
from optc.runtime.receipts.replay import replay
from optc.serve.receipts import Receipts
from tests.serve.conftest import Api, MakeApi
from tests.serve.toys import toy_engine

USER = {"role": "user", "content": "hi"}
Recording = tuple[Api, Callable[[], list[Receipt]]]


@pytest.fixture
def recording(make_api: MakeApi, tmp_path: Path) -> Recording:
    """A server, and what gives its receipts once it has closed the file."""
    api, path = make_api(), tmp_path / "receipts"
    api.service.receipts = Receipts(path)
    return api, lambda: _closed(api, path)


def _closed(api: Api, path: Path) -> list[Receipt]:
    assert api.service.receipts is not None
    api.engine.close()  # its thread hands them in
    api.service.receipts.close()
    return [one for _, one in read_receipts(path)]


ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": ["ab", "c"], "n": 2},
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/responses": {"input": "hi", "max_output_tokens": 4},
    "/v1/messages": {"messages": [USER]},
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
def test_every_answer_has_a_receipt_that_replays(
    recording: Recording, route: str, stream: bool
) -> None:
    api, receipts = recording
    body = {"max_tokens": 4, **ROUTES[route], "stream": stream}
    if route == "/v1/responses":
        del body["max_tokens"]
    answer = api.http.post(route, json=body, headers={"x-request-id": "mine"})
    assert answer.status_code == 200, answer.text
    found = receipts()
    assert len(found) == (2 if route == "/v1/completions" else 1)
    assert {one.request_id for one in found} == {"mine"}
    assert {one.model for one in found} == {"toy"}
    assert all(one.params.seed is not None for one in found), "drawn by the server"
    with toy_engine() as again:
        assert all(not one.changes for one in replay(again, enumerate(found)))


def test_it_has_no_text_of_the_answer(recording: Recording, tmp_path: Path) -> None:
    api, receipts = recording
    more = {"logit_bias": {"40": 100}, "max_tokens": 8, "temperature": 0}
    (choice,) = api.post("/v1/completions", prompt="ab", **more)["choices"]
    (one,) = receipts()
    assert choice["text"]
    line = (tmp_path / "receipts").read_text()
    assert choice["text"] not in line
    assert (tmp_path / "receipts").stat().st_mode & 0o777 == 0o600
    assert json.loads(line)["sampling"]["logit_bias"] == {"40": 100.0}
    assert one.params.temperature == 0


def test_texts_that_were_asked_for(make_api: MakeApi, tmp_path: Path) -> None:
    api, path = make_api(), tmp_path / "receipts"
    api.service.receipts = Receipts(path, with_text=True)
    (choice,) = api.post("/v1/completions", prompt="ab", max_tokens=4)["choices"]
    assert _closed(api, path)[0].answers[0].text == choice["text"]


def test_the_length_is_that_of_this_engine(recording: Recording) -> None:
    api, receipts = recording
    api.post("/v1/chat/completions", messages=[USER], stop_token_ids=list(range(280)))
    (one,) = receipts()
    assert one.params.max_tokens == api.engine.max_context - len(one.prompt)


def test_answers_that_time_ends_or_that_score_a_prompt_have_none(recording: Recording) -> None:
    api, receipts = recording
    more = {"max_tokens": 400, "ignore_eos": True}
    api.post("/v1/completions", prompt="ab", deadline_s=1e-6, **more)
    api.post("/v1/completions", prompt="ab", echo=True, max_tokens=0, logprobs=1)
    assert receipts() == []


def test_without_a_file_seeds_are_the_engines(api: Api) -> None:
    assert api.service.receipts is None
    assert api.post("/v1/completions", prompt="ab", max_tokens=1)["usage"]["completion_tokens"] == 1


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--receipts: cannot write .*: Is a directory"):
        Receipts(tmp_path)
