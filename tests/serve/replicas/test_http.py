"""A server whose engine is replicas: what clients are told when one ends."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import EngineError, ReplicaLostError
from optc.serve.api_errors import of_error
from tests.serve.conftest import Api, MakeApi
from tests.serve.replicas.local import Make, toy
from tests.serve.toys import FailingExecutable

USER = {"role": "user", "content": "hi"}
ASKED: dict[str, Any] = {"model": "toy", "max_tokens": 40, "temperature": 0}
LOST = "the engine failed: no more steps; ask again"


@pytest.fixture
def failing(make: Make, make_api: MakeApi) -> Api:
    """Fails after some steps, and is not replaced."""
    engine, _ = make(toy(executable=lambda: FailingExecutable(6)), report_s=1000)
    return make_api({"toy": engine})


def test_answers_are_those_of_one_engine(make: Make, make_api: MakeApi, api: Api) -> None:
    engine, _ = make()
    replicated = make_api({"toy": engine})
    for path, more in (
        ("/v1/completions", {"prompt": "hi", "seed": 3, "n": 2, "logprobs": 2}),
        ("/v1/chat/completions", {"messages": [USER], "seed": 5}),
    ):
        body = {**ASKED, **more, "temperature": 1}
        assert replicated.post(path, **body)["choices"] == api.post(path, **body)["choices"]
    choices = [
        one["choices"][0] for one in replicated.stream("/v1/completions", prompt="a", **ASKED)
    ]
    whole = api.post("/v1/completions", prompt="a", **ASKED)["choices"][0]
    assert "".join(one["text"] for one in choices) == whole["text"]


def test_an_answer_that_is_lost_is_a_503(failing: Api) -> None:
    answer = failing.http.post("/v1/completions", json={**ASKED, "prompt": "hi"})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    error = {"message": LOST, "type": "service_unavailable_error", "param": None}
    assert answer.json() == {"error": {**error, "code": "replica_lost"}}


@pytest.mark.parametrize(
    ("path", "prompt"),
    [("/v1/completions", {"prompt": "hi"}), ("/v1/chat/completions", {"messages": [USER]})],
)
def test_a_stream_that_is_lost_says_so(failing: Api, path: str, prompt: dict[str, Any]) -> None:
    *some, last = failing.stream(path, **ASKED, **prompt)
    assert some
    assert last["error"]["code"] == "replica_lost"


def test_the_errors_of_handles_are_told() -> None:
    lost = ReplicaLostError("gone")
    told = of_error(EngineError("gone"))
    assert told.status == 503  # the server closes
    wrapped = EngineError("gone")
    wrapped.__cause__ = lost
    for error in (lost, wrapped):
        assert (of_error(error).status, of_error(error).code) == (503, "replica_lost")
