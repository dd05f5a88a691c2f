"""How a request is served: what is refused, before the engine's thread sees it."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import RequestError
from optc.runtime.params import SamplingParams
from optc.runtime.requests.generation_request import GenerationRequest, as_request

SALT = "(a text of at most 1024 characters)"
NAME = "(a text; None is the model itself)"
PRIORITY = "(an integer; higher goes first)"
HUGE = "(a number of thousands of digits)"
DEADLINE = "(a number above 0 and up to 3162240000; None is no deadline)"


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"salt": 1}, f"salt: a salt of 1 is not allowed {SALT}"),
        ({"salt": "\ud800"}, f"salt: a salt of '\\ud800' is not allowed {SALT}"),
        (
            {"salt": "x" * 1025},
            f"salt: a salt of 'xxxxxxxxxxxx...xxxxxxxxxxxxx' is not allowed {SALT}",
        ),
        ({"adapter": [1]}, f"adapter: an adapter named [1] is not allowed {NAME}"),
        (
            {"deadline_s": 10**5000},
            f"deadline_s: a deadline of {HUGE} seconds is not allowed {DEADLINE}",
        ),
        ({"priority": 10**20 + 0.5}, f"priority: a priority of 1e+20 is not allowed {PRIORITY}"),
    ],
)
def test_terms_that_no_engine_can_serve_are_refused(terms: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        GenerationRequest("a", **terms)
    assert str(caught.value) == message


def test_terms_may_reach_their_limits() -> None:
    terms = GenerationRequest("a", salt="é" * 1024, priority=-(10**400), deadline_s=1e9)
    assert (len(terms.salt), terms.priority, terms.deadline_s) == (1024, -(10**400), 1e9)


def test_a_request_may_be_given_whole_or_in_parts() -> None:
    params = SamplingParams(max_tokens=3)
    whole = GenerationRequest("a", params, priority=2)
    assert as_request(whole, None, {}) is whole
    assert as_request("a", params, {"priority": 2}) == whole
    assert as_request([1], None, {}).params == SamplingParams()


@pytest.mark.parametrize(("params", "terms"), [(SamplingParams(), {}), (None, {"salt": "x"})])
def test_a_whole_request_comes_alone(params: SamplingParams | None, terms: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="holds its params and terms: give it alone"):
        as_request(GenerationRequest("a"), params, terms)


def test_an_unknown_term_is_refused() -> None:
    with pytest.raises(TypeError, match="'prio'"):
        as_request("a", None, {"prio": 1})


def test_what_a_request_is_unless_it_is_said() -> None:
    request = GenerationRequest("a")
    assert (request.salt, request.priority, request.adapter) == ("", 0, None)
    assert (request.deadline_s, request.parse_special) == (None, False)


@pytest.mark.parametrize("first", [-1, True, 1.5, "0", None])
def test_a_prompt_is_scored_from_a_token_on(first: Any) -> None:
    with pytest.raises(RequestError) as caught:
        GenerationRequest("a", scored_from=first)
    assert caught.value.where == "scored_from"
    assert GenerationRequest("a", scored_from=0).scored_from == 0
