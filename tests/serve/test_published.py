"""The time to the first bit of a stream that may be shown to a user."""

from __future__ import annotations

from typing import Any

import pytest

from optc.runtime.engine import Engine
from optc.serve.answering.streams import _shows
from optc.serve.published import Published
from tests.serve.asking.test_tools import FORMATS, TOOLS, template_with
from tests.serve.conftest import MakeApi
from tests.serve.test_metrics import samples
from tests.serve.toys import saying, toy_engine

USER = {"role": "user", "content": "hi"}


def test_a_timer_ends_once_it_is_called() -> None:
    times = iter([1.0, 1.5, 10.0, 11.0])
    published = Published(lambda: next(times))
    with toy_engine() as engine, toy_engine() as other:
        for _ in range(2):
            published.timer()(engine)
        found = published.times(engine)
        assert (found.count, found.total) == (2, 1.5)
        assert published.times(other).count == 0


@pytest.mark.parametrize(
    ("choice", "shows"),
    [
        (None, False),
        ({"text": "a"}, True),
        ({"text": "", "finish_reason": "stop"}, False),
        ({"delta": {"content": "a"}}, True),
        ({"delta": {"role": "assistant", "content": ""}}, False),
        ({"delta": {"reasoning": "a"}, "token_ids": [1]}, False),
        ({"delta": {"tool_calls": [{}]}}, True),
        ({"token_ids": [1], "logprobs": None}, True),
    ],
)
def test_what_may_be_shown(choice: dict[str, Any] | None, shows: bool) -> None:
    assert _shows(choice) is shows


def count(make_api: MakeApi, engine: Engine, path: str, **body: Any) -> float:
    """Streams that published something."""
    api = make_api({"toy": engine})
    api.http.post(path, json={"stream": True, "temperature": 0, **body})
    found = samples(api)
    ((_, counted),) = found["optc:time_to_publish_seconds_count"]
    buckets = found["optc:time_to_publish_seconds_bucket"]
    assert max(value for _, value in buckets) == counted
    return counted


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "hi", "max_tokens": 3}),
        ("/v1/chat/completions", {"messages": [USER]}),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {"messages": [USER], "max_tokens": 90}),
        ("/inference/v1/generate", {"token_ids": [5], "sampling_params": {"max_tokens": 3}}),
    ],
)
def test_every_stream_counts_once(make_api: MakeApi, path: str, body: dict[str, Any]) -> None:
    engine = saying("hello", [USER]) if "prompt" not in body else toy_engine()
    assert count(make_api, engine, path, **body) == 1


def test_whole_answers_and_thoughts_do_not_count(make_api: MakeApi) -> None:
    plain = {"prompt": "hi", "max_tokens": 3, "stream": False}
    assert count(make_api, toy_engine(), "/v1/completions", **plain) == 0
    template = template_with("<think></think>")
    for path, more in (
        ("/v1/chat/completions", {"messages": [USER]}),
        ("/v1/responses", {"input": "hi"}),
    ):
        thinking = saying("<think>so many thoughts", [USER], template)
        assert count(make_api, thinking, path, **more) == 0


def test_calls_count(make_api: MakeApi) -> None:
    marks, text, _ = FORMATS["hermes"]
    engine = saying(text.removeprefix("Well.\n"), [USER], template_with(marks), tools=TOOLS)
    assert count(make_api, engine, "/v1/chat/completions", messages=[USER], tools=TOOLS) == 1
