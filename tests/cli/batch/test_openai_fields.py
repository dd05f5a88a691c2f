"""Every field of OpenAI's requests with the value that asks for nothing, and template variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.cli.batch.batch_line import LineReader
from optc.cli.generating.prompts import PromptOptions
from optc.runtime.params import SamplingParams
from optc.runtime.requests.prompts import Chat
from optc.runtime.settings import ServeSettings
from tests.cli.batch.conftest import Answer, lines_of
from tests.cli.conftest import Optc
from tests.runtime.support.artifacts import write_artifact

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
PARAMS = SamplingParams(temperature=0.5, max_tokens=9)
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
#: Of the schemas of both requests and of vLLM's server: values that clients send by default.
BOTH: dict[str, list[Any]] = {
    "allowed_token_ids": [None, []],
    "bad_words": [None, []],
    "best_of": [None, 1],
    "chat_template": [None, ""],
    "detokenize": [True],
    "documents": [None, []],
    "early_stopping": [False],
    "frequency_penalty": [None, 0, 0.0],
    "guided_choice": [None, []],
    "guided_grammar": [None, ""],
    "guided_json": [None, {}],
    "guided_regex": [None, ""],
    "ignore_eos": [False],
    "include_reasoning": [True],
    "kv_transfer_params": [None, {}],
    "length_penalty": [1, 1.0],
    "logit_bias": [None, {}],
    "logits_processors": [None, []],
    "metadata": [None, {}, {"a": "b"}],
    "min_p": [0],
    "min_tokens": [0],
    "mm_processor_kwargs": [None, {}],
    "model": ["m", ""],
    "n": [None, 1],
    "num_beams": [1],
    "presence_penalty": [None, 0],
    "priority": [0],
    "prompt_cache_key": [None, "k"],
    "prompt_logprobs": [None, 0],
    "repetition_penalty": [1.0],
    "response_format": [None, {"type": "text"}],
    "return_token_ids": [False],
    "return_tokens_as_token_ids": [False],
    "safety_identifier": [None, "me"],
    "seed": [None, -1],
    "service_tier": [None, "auto", "default"],
    "skip_special_tokens": [True],
    "spaces_between_special_tokens": [True],
    "stop": [None, "", []],
    "stop_token_ids": [[]],
    "store": [None, False, True],
    "stream": [None, False],
    "stream_options": [None, {"include_usage": True}],
    "structural_tag": [None, ""],
    "structured_outputs": [None, {}],
    "temperature": [None],
    "top_k": [0],
    "top_p": [None, 1],
    "use_beam_search": [False],
    "user": [None, "", "me"],
}
FIELDS: dict[str, dict[str, list[Any]]] = {
    CHAT: BOTH
    | {
        "add_generation_prompt": [True],
        "audio": [None],
        "chat_template_kwargs": [None, {}],
        "continue_final_message": [False],
        "function_call": [None, "none", "auto"],
        "functions": [None, []],
        "logprobs": [None, False],
        "max_completion_tokens": [None],
        "max_tokens": [None],
        "modalities": [None, ["text"]],
        "parallel_tool_calls": [True, False],
        "prediction": [None],
        "reasoning_effort": [None],
        "tool_choice": [None, "none", "auto"],
        "tools": [None, []],
        "top_logprobs": [None, 0],
        "verbosity": [None, "medium"],
        "web_search_options": [None],
    },
    COMPLETIONS: BOTH | {"echo": [None, False], "logprobs": [None], "suffix": [None, ""]},
}


def read(url: str, **fields: Any) -> Any:
    body = {"messages": [USER]} if url == CHAT else {"prompt": "hi"}
    given = {"custom_id": "a", "method": "POST", "url": url, "body": body | fields}
    reader = LineReader(PromptOptions(), PARAMS, ServeSettings())
    return reader.read(1, json.dumps(given).encode())


@pytest.mark.parametrize("url", FIELDS)
def test_a_field_that_asks_for_nothing_changes_nothing(url: str) -> None:
    plain = read(url)
    assert plain.error is None
    for name, values in FIELDS[url].items():
        for value in values:
            found = read(url, **{name: value})
            assert (found.error, found.prompts) == (None, plain.prompts), (name, value)
            assert found.params == PARAMS, (name, value)
    together = {name: values[-1] for name, values in FIELDS[url].items()}
    assert read(url, **together).params == PARAMS


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        (CHAT, {"stream": True}),
        (CHAT, {"logprobs": 2}),
        (CHAT, {"logprobs": True, "top_logprobs": 101}),
        (CHAT, {"logprobs": True, "top_logprobs": "2"}),
        (CHAT, {"echo": True}),
        (COMPLETIONS, {"logprobs": True}),
        (COMPLETIONS, {"logprobs": 2, "top_logprobs": 2}),
        (COMPLETIONS, {"echo": 1}),
        (COMPLETIONS, {"max_tokens": 0}),
        (COMPLETIONS, {"suffix": "x"}),
        (COMPLETIONS, {"best_of": 2}),
        (CHAT, {"tool_choice": "required"}),
        (CHAT, {"modalities": ["text", "audio"]}),
        (CHAT, {"audio": {"voice": "x"}}),
        (CHAT, {"min_tokens": 3}),
        (CHAT, {"seed": -2}),
        (COMPLETIONS, {"tools": [TOOL]}),
        (CHAT, {"chat_template_kwargs": [1]}),
    ],
)
def test_a_field_that_asks_for_something_else_is_an_error(url: str, fields: dict[str, Any]) -> None:
    assert read(url, **fields).error is not None


@pytest.mark.parametrize(
    ("url", "fields", "changes"),
    [
        (CHAT, {"logprobs": True}, {"logprobs": 0}),
        (CHAT, {"logprobs": True, "top_logprobs": 2}, {"logprobs": 2}),
        (COMPLETIONS, {"logprobs": 0}, {"logprobs": 0}),
        (COMPLETIONS, {"logprobs": 3}, {"logprobs": 3}),
        (COMPLETIONS, {"best_of": 3, "n": 3}, {"n": 3}),
        (CHAT, {"max_tokens": 4, "max_completion_tokens": 5}, {"max_tokens": 5}),
        (CHAT, {"max_completion_tokens": 5, "max_tokens": 4}, {"max_tokens": 5}),
        (COMPLETIONS, {"echo": True}, {}),
        (COMPLETIONS, {"echo": True, "logprobs": 3}, {"logprobs": 3, "prompt_logprobs": 3}),
        (COMPLETIONS, {"echo": True, "max_tokens": 0}, {"max_tokens": 0, "prompt_logprobs": 0}),
        (
            COMPLETIONS,
            {"echo": True, "max_tokens": 0, "logprobs": 1},
            {"max_tokens": 0, "logprobs": 1, "prompt_logprobs": 1},
        ),
        (COMPLETIONS, {"prompt_logprobs": 2}, {"prompt_logprobs": 2}),
        (CHAT, {"prompt_logprobs": 2}, {"prompt_logprobs": 2}),
    ],
)
def test_log_probabilities_are_asked_for(
    url: str, fields: dict[str, Any], changes: dict[str, Any]
) -> None:
    found = read(url, **fields)
    assert found.error is None
    assert found.params == PARAMS.changed(**changes)


def test_no_probability_is_the_likeliest_token() -> None:
    found = read(CHAT, top_p=0)
    assert (found.params.top_p, found.params.top_k) == (1.0, 1)


def test_variables_of_the_template() -> None:
    more = {"enable_thinking": False, "reasoning_effort": "low"}
    found = read(CHAT, tools=[TOOL], reasoning_effort="high", chat_template_kwargs=more)
    assert found.prompts == (Chat([USER], {"tools": [TOOL], **more}),)
    ends = {"add_generation_prompt": False, "continue_final_message": True}
    assert read(CHAT, **ends).prompts == (Chat([USER], ends),)
    assert read(CHAT, tools=[TOOL], tool_choice="none").prompts == (Chat([USER], {}),)


def test_variables_reach_the_template(optc: Optc, talker: Path, tmp_path: Path) -> None:
    template = "{{ messages[0].content }}{{ tools }}{{ mode }}"
    path = write_artifact(tmp_path / "a", chat_template=template).path
    lines = [
        {"messages": [USER], "tools": [TOOL]},
        {"messages": [USER], "chat_template_kwargs": {"mode": "fast"}},
        {"messages": [USER]},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = ("--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl")
    options = ("--max-tokens", "1", "--chat-template-kwargs", '{"mode": "slow"}')
    assert optc("run", path, *files, *options).code == 0
    counts = [line["prompt_tokens"] for line in lines_of(tmp_path / "out.jsonl")]
    rendered = (f"hi{[TOOL]}slow", "hiNonefast", "hiNoneslow")
    assert counts == [len(text) for text in rendered]
    run = ("run", path, "--chat", "--prompt", "hi", "--max-tokens", "1", "--json")
    assert optc(*run, "--chat-template-kwargs", '{"mode": "x"}').json["prompt_tokens"] == 7
    for wrong, message in (("{", "not JSON"), ("[1]", "not a JSON object")):
        outcome = optc(*run, "--chat-template-kwargs", wrong)
        assert outcome.code == 2
        assert message in outcome.out


def test_the_form_of_answers_stays(answer: Answer, tmp_path: Path) -> None:
    body = {"messages": [USER], "tools": [], "logprobs": False, "max_tokens": 2}
    assert answer({"custom_id": "a", "url": CHAT, "body": body}).code == 0
    (found,) = lines_of(tmp_path / "out.jsonl")
    assert found["response"]["body"]["usage"]["completion_tokens"] == 2
