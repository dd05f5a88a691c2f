"""Requests of Dynamo's frontend become the engine's, or are refused by the name of a field."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import RequestError
from optc.serve.on_dynamo.request import read_request

#: As the frontend of Dynamo 1.6.1 sends it: every field is there, and most are null.
SENT: dict[str, Any] = {
    "model": "toy",
    "token_ids": [5, 6],
    "sampling_options": {
        "n": 1,
        "best_of": None,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "presence_penalty": 0.25,
        "frequency_penalty": None,
        "repetition_penalty": 1.5,
        "use_beam_search": False,
        "length_penalty": 1.0,
        "seed": -1,
        "include_stop_str_in_output": False,
        "guided_decoding": {"regex": "[0-9]", "json": None, "choice": None, "backend": "any"},
    },
    "stop_conditions": {
        "max_tokens": 9,
        "stop": ["x"],
        "stop_token_ids_hidden": [1, 2],
        "stop_token_ids": [2, 3],
        "min_tokens": 0,
        "ignore_eos": True,
        "max_thinking_tokens": None,
    },
    "output_options": {"logprobs": 2, "prompt_logprobs": None, "skip_special_tokens": True},
}


def test_every_field_that_the_engine_has_is_taken() -> None:
    request = read_request(SENT)
    params = request.params
    assert (request.prompt, request.adapter) == ([5, 6], None)
    assert (params.max_tokens, params.ignore_eos, params.logprobs) == (9, True, 2)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 7, 0.1)
    assert (params.presence_penalty, params.repetition_penalty) == (0.25, 1.5)
    assert params.seed == 2**64 - 1
    assert tuple(params.stop_token_ids) == (2, 3, 1)
    assert params.regex == "[0-9]"
    assert not params.stop  # which the frontend cuts


def test_what_nobody_states_is_the_engines() -> None:
    params = read_request({"token_ids": [5]}).params
    assert params.stated <= {"max_tokens"}
    assert params.max_tokens is None


@pytest.mark.parametrize(
    ("guided", "name", "value"),
    [
        ({"json": {"type": "object"}}, "json_schema", '{"type": "object"}'),
        ({"choice": ["a", "b"]}, "choice", ("a", "b")),
        ({"grammar": 'start: "a"'}, "grammar", 'start: "a"'),
    ],
)
def test_structures(guided: dict[str, Any], name: str, value: object) -> None:
    sampling = {"guided_decoding": guided}
    found = getattr(read_request({"token_ids": [5], "sampling_options": sampling}).params, name)
    assert (tuple(found) if name == "choice" else found) == value


def test_a_model_may_be_an_adapter() -> None:
    assert read_request({**SENT, "model": "sql"}, {"sql"}).adapter == "sql"


@pytest.mark.parametrize(("tokens", "prompt"), [([5], [0, 5]), ([0, 5], [0, 5]), ([], [0])])
def test_a_prompt_begins_as_the_model_wants_it(tokens: list[int], prompt: list[int]) -> None:
    assert read_request({"token_ids": tokens}, begin=0).prompt == prompt


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("sampling_options", "n", 2),
        ("sampling_options", "best_of", 2),
        ("sampling_options", "use_beam_search", True),
        ("sampling_options", "include_stop_str_in_output", True),
        ("stop_conditions", "min_tokens", 3),
        ("stop_conditions", "max_thinking_tokens", 3),
        ("output_options", "prompt_logprobs", 1),
    ],
)
def test_what_cannot_be_followed_is_named(part: str, name: str, value: object) -> None:
    with pytest.raises(RequestError, match=f"{name} is not supported") as caught:
        read_request({"token_ids": [5], part: {name: value}})
    assert caught.value.where == f"{part}.{name}"
    guided = {"guided_decoding": {"structural_tag": {"a": 1}}}
    with pytest.raises(RequestError, match="structural_tag is not supported"):
        read_request({"token_ids": [5], "sampling_options": guided})


@pytest.mark.parametrize("biases", [{"a": 1.0}, {"1.5": 1.0}, [1.0]])
def test_biases_are_of_token_ids(biases: object) -> None:
    with pytest.raises(RequestError, match="logit_bias"):
        read_request({"token_ids": [5], "sampling_options": {"logit_bias": biases}})
