"""What operations of a template cost, and which are refused before they are computed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2.exceptions import SecurityError

from optc.runtime.text.template_budget import (
    INTEGER_BITS,
    LONGEST_TEXT,
    MADE_TEXT,
    WIDTH,
    Budget,
    budget,
    check_operation,
    check_operator,
    check_short,
    current,
)

LONG = "a text or list of more than"


@pytest.fixture(autouse=True)
def _budget() -> Iterator[None]:
    with budget():
        yield


@pytest.mark.parametrize(
    ("values", "units"),
    [
        ((), 8),
        ((1,), 8 + 1),
        (("a" * 1023,), 8 + 1 + 1),
        (("a" * 1024, b"b" * 512), 8 + 2 + 2 + 1),
        (([1, [2]],), 8 + 3 + 2 + 1 + 1 - 0),
        (({"a": (1,)},), 8 + 3 + 2 + 1 + 1),
    ],
)
def test_a_step_costs_its_values_at_any_depth(values: tuple[object, ...], units: int) -> None:
    paid = Budget(1000, 0)
    paid.step(*values)
    assert 1000 - paid.work == units


def test_a_result_costs_its_length() -> None:
    paid = Budget(10, 2000)
    assert paid.made("a" * 1024) == "a" * 1024
    assert (paid.work, paid.text) == (10 - 1 - 2, 976)
    assert paid.made(7) == 7
    assert (paid.work, paid.text) == (6, 976)


def test_all_results_together_are_limited() -> None:
    paid = Budget(100, 5)
    paid.made("abcde")
    with pytest.raises(SecurityError, match="it makes too much text"):
        paid.made("f")


def test_work_is_limited() -> None:
    paid = Budget(9, 0)
    paid.step(1)
    with pytest.raises(SecurityError, match="it takes too many steps"):
        paid.spend(1)


def test_a_measured_operand_costs_a_unit_for_each_value_at_any_depth() -> None:
    before = current().work
    check_short(["a" * 9, [1, [2]], {"k": (3,)}])
    assert before - current().work == 1 + 4 + 4


@pytest.mark.parametrize(
    ("name", "operands", "message"),
    [
        ("center", ["a", 4097], "center of 4,097"),
        ("replace", ["a" * 4096, "a", "b" * 4097], LONG),
        ("join", ["s" * 4096, ["a"] * 4097], LONG),
        ("join", [["a"] * 4097, "s" * 4096], LONG),
        ("join", ["", [["a" * LONGEST_TEXT]]], LONG),
        ("join", ["", [{"a" * LONGEST_TEXT: 1}]], LONG),
        ("join", ["", [{1: "a" * LONGEST_TEXT}]], LONG),
        ("expandtabs", ["a" * 4095, 4096], LONG),
        ("format", ["{:99999}", 1], "a format with a width of its own"),
        ("sum", [[[1]], []], "a sum of lists"),
    ],
)
def test_a_call_with_a_vast_result_is_refused(
    name: str, operands: list[object], message: str
) -> None:
    with pytest.raises(SecurityError, match=message):
        check_operation(name, operands)


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("center", ["a", 4096]),
        ("replace", ["a" * 4096, "b", "b" * 4097]),
        ("round", [4097, 1]),
        ("center", [4097, 4096]),
        ("join", [iter(["a"]), ","]),
        ("join", [5, ["a"]]),
        ("expandtabs", ["a" * 4094, 4095]),
        ("format", ["{:9999}", 1]),
        ("sum", [[1, 2]]),
    ],
)
def test_a_call_with_a_bounded_result_is_not(name: str, operands: list[object]) -> None:
    check_operation(name, operands)


@pytest.mark.parametrize(
    ("operator", "left", "right", "message"),
    [
        ("*", 1 << 2048, 1 << 2047, "an integer of too many digits"),
        ("**", 2, 2049, "an integer of too many digits"),
        ("*", 10, "a" * (LONGEST_TEXT // 8), LONG),
        ("*", ["a"] * 4097, 4096, LONG),
        ("%", "%*d", (5, 1), "a format with a width of its own"),
        ("%", "%10000d", 1, "a format with a width of its own"),
        ("%", "%s" * 4096, ("a" * 4096,), LONG),
    ],
)
def test_an_operator_with_a_vast_result_is_refused(
    operator: str, left: object, right: object, message: str
) -> None:
    with pytest.raises(SecurityError, match=message):
        check_operator(operator, left, right)


@pytest.mark.parametrize(
    ("operator", "left", "right"),
    [
        ("*", 1 << 2046, 1 << 2047),
        ("**", 2, 2048),
        ("+", 1, "a" * LONGEST_TEXT),
        ("*", 8, "a" * (LONGEST_TEXT // 8)),
        ("%", "%9999d", 1),
        ("%", 7, 3),
    ],
)
def test_an_operator_with_a_bounded_result_is_not(
    operator: str, left: object, right: object
) -> None:
    check_operator(operator, left, right)


def test_a_budget_ends_with_its_block() -> None:
    outer = current()
    with budget():
        assert current() is not outer
    assert current() is outer


def test_only_formats_are_formats() -> None:
    check_operator("+", "%999999d", "a")
    with pytest.raises(SecurityError):
        check_operator("%", "%999999d", 1)


def test_the_limits_are_those_that_the_decision_states() -> None:
    (decision,) = (Path(__file__).parents[3] / "docs/adr").glob("0079-*.md")
    assert (
        f"No text or list is longer than {LONGEST_TEXT >> 20} Mi, all texts and lists that are "
        f"made have {MADE_TEXT >> 20} MiB together, an integer has {INTEGER_BITS} bits, a width, "
        f"precision or count of a filter is at most {WIDTH}."
    ) in " ".join(decision.read_text().split())
