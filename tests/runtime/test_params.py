from __future__ import annotations

import copy
import itertools
import math
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import pytest

from optc.errors import RequestError
from optc.runtime.params import SamplingParams
from optc.system.options.option import options_of


def test_defaults_are_vllms() -> None:
    params = SamplingParams()
    assert (params.max_tokens, params.temperature, params.top_p, params.n) == (16, 1.0, 1.0, 1)
    assert params.stop_strings == ()
    assert not params.greedy
    assert not params.adjusts_logits


def test_lists_are_copied_and_one_stop_string_is_a_tuple() -> None:
    tokens = [1, 2]
    params = SamplingParams(stop="end", stop_token_ids=tokens)
    tokens.append(3)
    assert params.stop_strings == ("end",)
    assert params.stop_token_ids == (1, 2)


def test_numpy_numbers_are_numbers() -> None:
    params = SamplingParams(max_tokens=np.int64(4), temperature=np.float32(0))  # type: ignore[arg-type]
    assert params.greedy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0 is not allowed (must be at least 1; None is as many"),
        ({"max_tokens": 1.5}, "max_tokens=1.5 is not allowed (must be an integer"),
        ({"temperature": -1}, "temperature=-1 is not allowed (must be at least 0; 0 is greedy)"),
        ({"temperature": math.nan}, "temperature=nan is not allowed"),
        ({"temperature": "hot"}, "temperature='hot' is not allowed (must be a number)"),
        ({"top_p": 0}, "top_p=0 is not allowed (must be above 0 and at most 1"),
        ({"top_p": True}, "top_p=True is not allowed (must be a number)"),
        ({"top_k": -2}, "top_k=-2 is not allowed (must be at least -1; 0 keeps all tokens)"),
        ({"min_p": 1.1}, "min_p=1.1 is not allowed (must be from 0 to 1"),
        ({"seed": -1}, "seed=-1 is not allowed (must be from 0 to 18446744073709551615)"),
        ({"seed": 2**64}, "seed=18446744073709551616 is not allowed"),
        ({"stop": ["a", ""]}, "stop=['a', ''] is not allowed (must be non-empty strings)"),
        ({"stop": 3}, "stop=3 is not allowed (must be a list)"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids=['a'] is not allowed (must be integers)"),
        ({"logprobs": 101}, "logprobs=101 is not allowed (must be from 0 to 100)"),
        ({"repetition_penalty": 0}, "repetition_penalty=0 is not allowed (must be from 1e-30"),
        (
            {"presence_penalty": math.inf},
            "presence_penalty=inf is not allowed (must be from -1e+30",
        ),
        ({"frequency_penalty": None}, "frequency_penalty=None is not allowed (must be a number)"),
        ({"logit_bias": [1]}, "logit_bias=[1] is not allowed (must be a mapping"),
        ({"logit_bias": {1: math.inf}}, "logit_bias[1]=inf is not allowed (must be from -3e+38 to"),
        ({"logit_bias": {1: 1e39}}, "logit_bias[1]=1e+39 is not allowed (must be from -3e+38 to"),
        ({"logit_bias": {"a": 1}}, "logit_bias={'a': 1} is not allowed (must be for token ids)"),
        ({"length_penalty": "1"}, "length_penalty='1' is not allowed (must be a number)"),
        ({"n": 0}, "n=0 is not allowed (must be from 1 to 128)"),
    ],
)
def test_bad_values_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**options)
    assert str(caught.value).startswith(f"sampling parameters: {message}")


HUGE = 10**5000
MANY = range(10**6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 129}, "n=129 is not allowed (must be from 1 to 128)"),
        ({"n": HUGE}, "n=(a number of thousands of digits) is not allowed (must be from 1 to 128)"),
        ({"stop": [f"{i}" for i in range(65)]}, "stop=['0', '1', '2', '3', '4', '5', ...] is not"),
        ({"stop": itertools.repeat("a")}, "stop=repeat('a') is not allowed (must be a list of 64"),
        (
            {"stop": "a" * 4097},
            "stop='aaaaaaaaaaaa...aaaaaaaaaaaaa' is not allowed (must be of 4096",
        ),
        ({"stop_token_ids": MANY}, "stop_token_ids=range(0, 1000000) is not allowed (must be a"),
        ({"logit_bias": dict.fromkeys(MANY, 1)}, "logit_bias={0: 1, 1: 1, 2: 1, 3: 1, ...} is not"),
        ({"temperature": HUGE}, "temperature=(a number of thousands of digits) is not allowed"),
        ({"logit_bias": {1: HUGE}}, "logit_bias[1]=(a number of thousands of digits) is not"),
        ({"length_penalty": 10**400}, "length_penalty=100000000000000000...0000000000000000000"),
    ],
)
def test_what_would_hold_up_or_end_a_service_is_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**options)
    assert str(caught.value).startswith(f"sampling parameters: {message}")
    assert len(str(caught.value)) < 200


def test_limits_may_be_reached() -> None:
    params = SamplingParams(
        n=128,
        stop=["a" * 64] * 64,
        stop_token_ids=range(1024),
        logit_bias=dict.fromkeys(range(1024), -math.inf),
        max_tokens=HUGE,
        top_k=HUGE,
    )
    assert (params.completions, len(params.stop_strings)) == (128, 64)
    assert (len(params.stop_token_ids), len(params.logit_bias)) == (1024, 1024)
    assert params.max_tokens == params.top_k == HUGE


def test_what_lies_within_the_bounds_is_taken() -> None:
    assert SamplingParams(min_p=0.5, top_p=0.5, typical_p=0.5).min_p == 0.5
    assert SamplingParams(min_p=1).min_p == 1
    assert SamplingParams(temperature=0).greedy
    with pytest.raises(RequestError, match="temperature=inf is not allowed"):
        SamplingParams(temperature=math.inf)


def test_end_tokens_end_a_text_unless_the_caller_says_otherwise() -> None:
    assert SamplingParams().ignore_eos is False


def test_values_are_kept_as_the_texts_and_tuples_that_they_are_checked_as() -> None:
    assert SamplingParams(stop="end").stop == ("end",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")
    assert SamplingParams(choice=["a", "b"]).choice == ("a", "b")
    assert SamplingParams(json_schema={"type": "object"}).json_schema == '{"type": "object"}'


def test_lists_may_be_as_long_as_their_limit() -> None:
    assert len(SamplingParams(stop_token_ids=list(range(1024))).stop_token_ids) == 1024
    assert len(SamplingParams(logit_bias=dict.fromkeys(range(1024), 1.0)).logit_bias) == 1024
    with pytest.raises(RequestError, match="stop_token_ids"):
        SamplingParams(stop_token_ids=list(range(1025)))
    with pytest.raises(RequestError, match="of 1024 tokens at most"):
        SamplingParams(logit_bias=dict.fromkeys(range(1025), 1.0))


@pytest.mark.parametrize("value", [math.inf, math.nan, 0, -1])
def test_a_repetition_penalty_is_finite_and_above_0(value: float) -> None:
    with pytest.raises(RequestError, match="repetition_penalty"):
        SamplingParams(repetition_penalty=value)


#: A value of each parameter that is not its default.
OTHERS: dict[str, Any] = {
    "max_tokens": 7,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "typical_p": 0.5,
    "seed": 1,
    "stop": "end",
    "stop_token_ids": (1,),
    "logprobs": 1,
    "prompt_logprobs": 1,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "logit_bias": {1: 1.0},
    "length_penalty": 2.0,
    "early_stopping": True,
    "n": 2,
    "ignore_eos": True,
    "skip_special_tokens": False,
    "beam_width": 2,
    "json_schema": "{}",
    "regex": "a",
    "grammar": "start: a",
    "choice": ("a",),
}


def test_another_value_of_each_parameter_is_known_here() -> None:
    assert OTHERS.keys() == {f.name for f in fields(SamplingParams)}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("way", ["replace", "copy.replace", "changed"])
def test_a_change_states_itself_and_what_was_stated(name: str, way: str) -> None:
    """Whatever the model's own settings are: they hold for all others."""
    kept = "seed" if name != "seed" else "n"
    params = SamplingParams(**{kept: OTHERS[kept]})
    changes = {name: OTHERS[name]}
    if name == "beam_width":
        kept, params = "max_tokens", SamplingParams(max_tokens=7)
    if way == "replace":
        changed = replace(params, **changes)
    elif way == "copy.replace":  # from Python 3.13 on
        changed = params.__replace__(**changes)
    else:
        changed = params.changed(**changes)
    assert changed == SamplingParams(**{kept: OTHERS[kept]} | changes)
    assert changed.stated == {kept, name}
    again = replace(replace(copy.deepcopy(changed)), max_tokens=9)
    assert again.stated == {kept, name, "max_tokens"}


def test_defaults_hold_behind_a_replacement() -> None:
    defaults = {"temperature": 0.6, "top_p": 0.9, "max_tokens": 300, "stop": ("a",)}
    params = replace(SamplingParams(seed=1), top_p=0.5).with_defaults(defaults)
    assert (params.temperature, params.top_p, params.max_tokens) == (0.6, 0.5, 300)
    plain = replace(SamplingParams(), temperature=float("1"), stop=[]).with_defaults(defaults)
    assert (plain.temperature, plain.stop) == (1.0, ())
    assert SamplingParams().changed(max_tokens=16).with_defaults(defaults).max_tokens == 16


def test_a_replacement_is_checked_and_shown_as_any_other() -> None:
    with pytest.raises(RequestError, match="top_k=-2 is not allowed"):
        replace(SamplingParams(), top_k=-2)
    with pytest.raises(TypeError, match="sead"):
        replace(SamplingParams(), sead=1)  # type: ignore[call-arg]
    assert "_replaced" not in repr(replace(SamplingParams(), seed=1))
    assert asdict(replace(SamplingParams(), seed=1)).keys() == OTHERS.keys()


#: Numbers that ``--help`` says; the words of others say what stands where nothing is given.
SHOWN = {
    "max_tokens": 16,
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "length_penalty": 1.0,
    "n": 1,
}


def test_defaults_that_are_shown_and_those_that_are_not() -> None:
    params, options = SamplingParams(), options_of(SamplingParams)
    shown = {name: getattr(params, name) for name, one in options.items() if one.show_default}
    assert shown == SHOWN
    rest = {one.name: getattr(params, one.name) for one in fields(params) if one.name not in SHOWN}
    plain = {"top_k": 0, "stop": (), "stop_token_ids": (), "logit_bias": {}}
    flags = {"early_stopping": False, "ignore_eos": False, "skip_special_tokens": True}
    assert {name: rest.pop(name) for name in (*plain, *flags)} == plain | flags
    assert set(rest.values()) == {None}
