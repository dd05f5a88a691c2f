"""``/inference/v1/generate``: tokens in, tokens out."""

from __future__ import annotations

from typing import Any

import pytest

import optc
from tests.serve.conftest import Api

PATH = "/inference/v1/generate"
TOKENS = [5, 6, 7]


def test_the_tokens_are_the_engines(api: Api) -> None:
    sampling = {"max_tokens": 6, "seed": 3, "n": 2, "logprobs": 2, "ignore_eos": True}
    params = optc.SamplingParams(**sampling)
    (wanted,) = api.engine.generate([TOKENS], params)
    found = api.post(PATH, token_ids=TOKENS, sampling_params=sampling)
    assert [one["token_ids"] for one in found["choices"]] == [
        list(one.token_ids) for one in wanted.completions
    ]
    assert {one["finish_reason"] for one in found["choices"]} == {"length"}
    first = found["choices"][0]["logprobs"]["content"]
    assert first[0]["token"] == f"token_id:{wanted.token_ids[0]}"
    assert len(first[0]["top_logprobs"]) == 2
    assert "text" not in found["choices"][0]
    assert found["usage"]["completion_tokens"] == 12
    assert (found["object"], found["model"]) == ("generate", "toy")


def test_a_stream_adds_up(api: Api) -> None:
    body = {"token_ids": TOKENS, "sampling_params": {"max_tokens": 6, "seed": 3}}
    whole = api.post(PATH, **body)["choices"][0]
    chunks = api.stream(PATH, **body, stream_options={"include_usage": True})
    parts = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [token for part in parts for token in part["token_ids"]] == whole["token_ids"]
    assert [part["finish_reason"] for part in parts][-1] == whole["finish_reason"]
    assert chunks[-1]["usage"]["completion_tokens"] == len(whole["token_ids"])


def test_a_prompt_is_scored(api: Api) -> None:
    sampling = {"max_tokens": 1, "prompt_logprobs": 1}
    (choice,) = api.post(PATH, token_ids=TOKENS, sampling_params=sampling)["choices"]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert [str(token) in one for token, one in zip(TOKENS[1:], others, strict=True)] == [True] * 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "token_ids"),
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": "text"}, "token_ids"),
        ({"token_ids": TOKENS, "prompt": "hi"}, "prompt"),
        ({"token_ids": TOKENS, "sampling_params": {"echo": True}}, "echo"),
        ({"token_ids": TOKENS, "sampling_params": {"temperature": -1}}, "temperature"),
        (
            {"token_ids": TOKENS, "sampling_params": {"temperature": "hot"}},
            "sampling_params.temper",
        ),
        ({"token_ids": [100_000]}, None),
    ],
)
def test_what_is_wrong(api: Api, body: dict[str, Any], param: str | None) -> None:
    error = api.error(PATH, **body)
    if param is not None:
        assert error["param"].startswith(param)
