"""Lists of what may fail tell what is not on them, and what is on them for nothing."""

from __future__ import annotations

from tests.serve.suites.expected import Expected, differing

LIST = [Expected(("a::*", "b::one"), "no route", "there is none")]


def test_a_suite_that_is_as_its_list() -> None:
    assert not differing({"a::x": "404: no route", "b::one": "no route"}, LIST)


def test_what_is_not_on_the_list_is_told() -> None:
    failed = {"a::x": "no route", "b::one": "no route", "a::y": "500", "c": "no route"}
    assert differing(failed, LIST) == ["a::y: 500", "c: no route"]


def test_what_fails_no_more_is_told() -> None:
    assert differing({"a::x": "no route"}, LIST) == ["nothing fails as 'b::one' any more"]
