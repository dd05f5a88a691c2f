"""Every field of a request is followed, ignored, or refused by its name."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from optc.runtime.openai.names import REFUSED, SAMPLING
from optc.serve.asking.asked import Asked, Asker
from optc.serve.asking.chat import ask_chat
from optc.serve.asking.completion import ask_completion
from optc.serve.settings import HTTPSettings, Limits
from tests.cli.batch.test_openai_fields import CHAT, COMPLETIONS, FIELDS
from tests.serve.conftest import Api, MakeApi

USER = {"role": "user", "content": "hi"}
PROMPTS: dict[str, dict[str, Any]] = {CHAT: {"messages": [USER]}, COMPLETIONS: {"prompt": "hi"}}


def asked(api: Api, url: str, asker: Asker | None = None, **fields: Any) -> Asked:
    ask = ask_chat if url == CHAT else ask_completion
    body = {"model": "toy", **PROMPTS[url], **fields}
    return ask(body, api.service.models, asker or Asker(), api.service.settings.limits)


@pytest.mark.parametrize("url", PROMPTS)
def test_a_value_that_asks_for_nothing_changes_nothing(api: Api, url: str) -> None:
    plain = asked(api, url)
    for name, values in FIELDS[url].items():
        for value in values:
            if name in ("model", "stream_options"):
                continue  # of the server, not of texts
            found = asked(api, url, **{name: value})
            assert found.requests[0].params == plain.requests[0].params, (name, value)
            assert found.unknown == (), (name, value)


@pytest.mark.parametrize("url", PROMPTS)
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_known_and_cannot_be_followed_is_refused_by_name(
    api: Api, url: str, name: str
) -> None:
    error = api.error(url, **PROMPTS[url], **{name: ["x"]})
    assert error["param"] == name
    assert error["message"].startswith(f"{name} is not supported")


def test_no_parameter_is_both_followed_and_refused() -> None:
    assert not SAMPLING & REFUSED.keys()


def test_unknown_fields_are_ignored_and_named_once(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "optc.serve"):
        for _ in range(3):
            api.post(COMPLETIONS, prompt="hi", max_tokens=1, trace_me=True, also={"a": 1})
    assert [record.getMessage() for record in caplog.records] == [
        "requests have a field 'trace_me', which is ignored",
        "requests have a field 'also', which is ignored",
    ]


def test_the_log_of_unknown_fields_is_bounded(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "optc.serve"):
        api.post(COMPLETIONS, prompt="hi", max_tokens=1, **{f"f{i}" * 50: 1 for i in range(300)})
    assert len(caplog.records) == 256
    assert max(len(record.getMessage()) for record in caplog.records) < 120


@pytest.mark.parametrize(("given", "priority"), [(None, 0), (0, 0), (3, -3), (-7, 7)])
def test_lower_priorities_go_first_in_the_api(api: Api, given: Any, priority: int) -> None:
    assert asked(api, CHAT, priority=given).requests[0].priority == priority


def test_prefixes_are_shared_by_requests_of_one_key_and_salt_alone(api: Api) -> None:
    salts = [
        asked(api, CHAT, Asker(key), cache_salt=salt).requests[0].salt
        for key in ("", "a", "b", "a\0b")
        for salt in (None, "b", "a", "a\0b")
    ]
    assert len(set(salts)) == len(salts)
    assert asked(api, CHAT, Asker("a")).requests[0].salt == salts[4]
    assert salts[0] == ""
    assert max(map(len, salts)) <= 64


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (COMPLETIONS, {"temperature": -1}, "temperature"),
    (COMPLETIONS, {"temperature": "hot"}, "temperature"),
    (COMPLETIONS, {"top_p": 1.5}, "top_p"),
    (COMPLETIONS, {"max_tokens": 0}, "max_tokens"),
    (COMPLETIONS, {"max_tokens": 1.5}, "max_tokens"),
    (COMPLETIONS, {"n": 0}, "n"),
    (COMPLETIONS, {"n": 129}, "n"),
    (COMPLETIONS, {"prompt": ["hi"] * 70, "n": 2}, "n"),
    (COMPLETIONS, {"prompt": ["hi"] * 129}, "prompt"),
    (COMPLETIONS, {"seed": 1 << 64}, "seed"),
    (COMPLETIONS, {"stop": ["a", 1]}, "stop.1"),
    (COMPLETIONS, {"stop": ["a"] * 65}, "stop"),
    (COMPLETIONS, {"logit_bias": {"x": 1}}, "logit_bias"),
    (COMPLETIONS, {"logit_bias": {"900": 1}}, "logit_bias"),
    (COMPLETIONS, {"logprobs": 101}, "logprobs"),
    (COMPLETIONS, {"prompt": []}, "prompt"),
    (COMPLETIONS, {"prompt": ""}, "prompt"),
    (COMPLETIONS, {"prompt": [[5], []]}, "prompt"),
    (COMPLETIONS, {"prompt": [900]}, "prompt"),
    (COMPLETIONS, {"prompt": {"a": 1}}, "prompt"),
    (COMPLETIONS, {"cache_salt": ""}, "cache_salt"),
    (COMPLETIONS, {"deadline_s": -1}, "deadline_s"),
    (COMPLETIONS, {"structured_outputs": {"regex": "("}}, "regex"),
    (COMPLETIONS, {"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    (COMPLETIONS, {"structured_outputs": {"structural_tag": "a"}}, "structured_outputs"),
    (COMPLETIONS, {"response_format": {"type": "yaml"}}, "response_format"),
    (COMPLETIONS, {"response_format": {"type": "json_schema"}}, "response_format"),
    (CHAT, {"messages": []}, "messages"),
    (CHAT, {"messages": "hi"}, "messages"),
    (CHAT, {"messages": [{"content": "hi"}]}, "messages.0.role"),
    (CHAT, {"messages": [{"role": "user", "content": 7}]}, "messages.0.content"),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
        "messages.0.content.0.type",
    ),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    (CHAT, {"tools": [{"type": "x"}]}, "tools.0.type"),
    (CHAT, {"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
    (CHAT, {"top_logprobs": 101, "logprobs": True}, "logprobs"),
    (CHAT, {"chat_template_kwargs": [1]}, "chat_template_kwargs"),
    (CHAT, {"tool_choice": "must"}, "tool_choice"),
]


@pytest.mark.parametrize(("url", "fields", "param"), WRONG)
@pytest.mark.parametrize("stream", [False, True])
def test_wrong_values_are_a_400_that_names_the_field(
    api: Api, url: str, fields: dict[str, Any], param: str, stream: bool
) -> None:
    error = api.error(url, **{**PROMPTS[url], **fields, "stream": stream})
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) < 400


def test_the_operator_bounds_new_tokens(make_api: MakeApi) -> None:
    api = make_api(settings=HTTPSettings(limits=Limits(new_tokens=7)))
    for url, prompt in PROMPTS.items():
        assert api.error(url, **prompt, max_tokens=8)["param"] == "max_tokens"
        usage = api.post(url, **prompt, ignore_eos=True)["usage"]
        assert usage["completion_tokens"] == 7
        assert (
            api.post(url, **prompt, max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"]
            == 2
        )
