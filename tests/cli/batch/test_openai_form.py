"""Lines of OpenAI's Batch API, and their answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import optc as package
from tests.cli.batch.conftest import Answer, lines_of

USER = {"role": "user", "content": "hi"}
CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "f"}}


def line(body: dict[str, Any], url: str = CHAT, **more: Any) -> dict[str, Any]:
    return {"custom_id": "a", "method": "POST", "url": url, "body": body, **more}


def test_requests_and_responses(answer: Answer, talker: Path, tmp_path: Path) -> None:
    chat = {"model": "m", "messages": [USER], "max_completion_tokens": 3, "temperature": None}
    drawn = {"prompt": "hi", "n": 2, "temperature": 1, "seed": 3, "user": "u", "stream": False}
    outcome = answer(line(chat), line(drawn, "/v1/completions", custom_id="b"))
    assert outcome.code == 0
    first, second = lines_of(tmp_path / "out.jsonl")
    greedy = package.SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    sampled = package.SamplingParams(n=2, seed=3, max_tokens=4, ignore_eos=True)
    with package.load(talker) as engine:
        turn = engine.chat([USER], greedy)
        (both,) = engine.generate("hi", sampled)
    assert first["response"]["body"].pop("created") > 0
    assert first == {
        "id": "batch_req_1",
        "custom_id": "a",
        "response": {
            "status_code": 200,
            "request_id": "req_1",
            "body": {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": turn.text},
                        "logprobs": None,
                        "finish_reason": "length",
                    }
                ],
                "usage": {
                    "prompt_tokens": turn.prompt_tokens,
                    "completion_tokens": 3,
                    "total_tokens": turn.prompt_tokens + 3,
                },
            },
        },
        "error": None,
    }
    assert (second["id"], second["custom_id"]) == ("batch_req_2", "b")
    assert second["response"]["body"]["object"] == "text_completion"
    texts = [choice["text"] for choice in second["response"]["body"]["choices"]]
    assert texts == [completion.text for completion in both.completions]


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    "prompts",
    [["hi"], ["hi", "a longer one", "hi"], [[5, 6]], [[5, 6], [7], [5, 6, 8]], ["hi", [7]]],
)
def test_several_prompts_have_their_choices_one_after_the_other(
    answer: Answer, talker: Path, tmp_path: Path, prompts: list[Any], n: int
) -> None:
    drawn = {"n": n, "temperature": 1, "seed": 3}
    lines = [line({"prompt": prompts, **drawn}, "/v1/completions")]
    assert answer(*lines, line({"prompt": "x"}, "/v1/completions")).code == 0
    first, second = lines_of(tmp_path / "out.jsonl")
    params = package.SamplingParams(n=n, seed=3, max_tokens=4, ignore_eos=True)
    with package.load(talker) as engine:
        outputs = engine.generate(prompts, params)
    body = first["response"]["body"]
    expected = [one.text for output in outputs for one in output.completions]
    assert [choice["text"] for choice in body["choices"]] == expected
    assert [choice["index"] for choice in body["choices"]] == list(range(n * len(prompts)))
    read = sum(output.prompt_tokens for output in outputs)
    written = 4 * n * len(prompts)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    assert body["usage"] == usage
    assert len(second["response"]["body"]["choices"]) == 1


def test_a_plain_line_has_one_prompt(answer: Answer, tmp_path: Path) -> None:
    assert answer({"prompt": ["a", "b"]}, {"prompt": [[5], [6]]}).code == 2
    hints = [found["error"]["hint"] for found in lines_of(tmp_path / "out.jsonl")]
    assert hints == ["a text or a list of token ids; several prompts are a line each"] * 2


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, dict),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 7}}}, int),
    ],
)
def test_formats_of_responses(
    answer: Answer, tmp_path: Path, form: dict[str, Any], pattern: type | None
) -> None:
    body = {"messages": [USER], "response_format": form, "max_tokens": 40}
    body["logit_bias"] = {"128": 50}  # a brace
    answer(line(body))
    (found,) = lines_of(tmp_path / "out.jsonl")
    content = found["response"]["body"]["choices"][0]["message"]["content"]
    if pattern is int:
        assert json.loads(content) == 7
    elif pattern is dict:
        assert content.startswith("{")
    else:
        assert not content.startswith("{")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (line({}, "/v1/embeddings"), "url: '/v1/embeddings' is not served"),
        (line({"messages": [USER]}, method="GET"), "method: the method is POST"),
        (line({"messages": [USER]}, method="post"), "method: the method is POST"),
        (line({"prompt": "x"}), "body: it has no messages"),
        (line({"messages": None}), "body: it has no messages"),
        (line({"messages": "x"}), "messages: not a conversation"),
        (line({"messages": [USER], "stream": True}), "answers in files do not stream"),
        (line({"messages": [USER], "logprobs": 3}), "logprobs: neither true nor false"),
        (line({"prompt": "a", "echo": 1}, "/v1/completions"), "echo: neither true nor false"),
        (line({"messages": [USER], "response_format": {"type": "xml"}}), "not a format of"),
        (line({"messages": [USER], "response_format": 3}), "not a format of responses"),
        (line({"messages": [USER], "max_tokens": 0}), "max_tokens=0 is not allowed"),
        (line({"prompt": ["a", 1]}, "/v1/completions"), "prompt: not a prompt"),
        (line({"prompt": [["a"]]}, "/v1/completions"), "prompt: not a prompt"),
        (line({"prompt": [[1], None]}, "/v1/completions"), "prompt: not a prompt"),
        (line({"prompt": [True]}, "/v1/completions"), "prompt: not a prompt"),
        (line({"prompt": []}, "/v1/completions"), "prompt: the prompt is empty"),
        (line({"prompt": ["a", ""]}, "/v1/completions"), "prompt: the prompt is empty"),
        (line({"prompt": [[1], []]}, "/v1/completions"), "prompt: the prompt is empty"),
        (line({"prompt": [[1], [10**6]]}, "/v1/completions"), "prompt: unknown token ids"),
        (line({"messages": [USER], "tools": [TOOL]}), "tools: the chat template reads no tools"),
    ],
)
def test_what_is_not_served(
    answer: Answer, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    assert answer(given).code == 2
    (found,) = lines_of(tmp_path / "out.jsonl")
    assert (found["custom_id"], found["response"]) == ("a", None)
    assert message in found["error"]["message"]
    assert found["error"]["code"] in ("input", "request")


def test_a_line_of_a_batch_has_a_name(answer: Answer, tmp_path: Path) -> None:
    assert answer({"url": CHAT, "body": {"messages": [USER]}}).code == 2
    (found,) = lines_of(tmp_path / "out.jsonl")
    assert "a line of a batch has a text as its custom_id" in found["error"]["message"]
