"""Terms of a request: what is refused, before the engine's thread sees it."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import RequestError
from optc.runtime.requests.terms import Terms

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
        Terms(**terms)
    assert str(caught.value) == message


def test_terms_may_reach_their_limits() -> None:
    terms = Terms(salt="é" * 1024, priority=-(10**400), deadline_s=1e9)
    assert (len(terms.salt), terms.priority, terms.deadline_s) == (1024, -(10**400), 1e9)
