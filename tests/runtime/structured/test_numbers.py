"""Numbers of schemas: what they allow is allowed by exact arithmetic, or they are refused."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import llguidance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.errors import RequestError
from optc.runtime.structured.compiler import GrammarCompiler, _json_grammar
from optc.runtime.structured.numbers import exact_numbers, with_exact_numbers
from optc.runtime.structured.structure import Structure
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level

LEAST, MOST = -(1 << 63), (1 << 63) - 1
BYTES = llguidance.LLTokenizer("byte")
COMPILER = GrammarCompiler(Tokenizer(byte_level()), 259, [1])
#: What each bound says of a number.
HOLDS = {
    "minimum": Fraction.__ge__,
    "exclusiveMinimum": Fraction.__gt__,
    "maximum": Fraction.__le__,
    "exclusiveMaximum": Fraction.__lt__,
}


def exact(number: int | float) -> Fraction:
    return Fraction(Decimal(repr(number)))


def allows(schema: dict[str, Any], text: str) -> bool:
    grammar = _json_grammar(with_exact_numbers(json.dumps(schema)))
    matcher = llguidance.LLMatcher(BYTES, grammar, log_level=0)
    return matcher.try_consume_tokens(list(text.encode())) == len(text) and matcher.is_accepting()


def forbids_nothing_less(schema: dict[str, Any], numbers: list[Decimal]) -> None:
    texts = {form.format(n) for n in numbers for form in ("{:f}", "{:.1f}", "{:.2f}", "{:.0f}")}
    for text in texts | {"0", "-0", "0.0", "-0.0"}:
        number = Fraction(text)
        right = all(HOLDS[key](number, exact(schema[key])) for key in HOLDS if key in schema)
        right = right and (schema["type"] == "number" or number.denominator == 1)
        assert right or not allows(schema, text), (schema, text)


BOUNDS = st.one_of(
    st.sampled_from([0, 1, -1, 10, 99, -0.0, 0.5, -0.5, 0.001, 1e-06, 1.5, 99.99]),
    st.integers(-1000, 1000),
    st.floats(-20, 20).map(lambda number: round(number, 3)),
)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["number", "integer"]),
    low=st.sampled_from(["minimum", "exclusiveMinimum"]),
    high=st.sampled_from(["maximum", "exclusiveMaximum"]),
    ends=st.tuples(BOUNDS, BOUNDS),
)
def test_ranges_let_nothing_else_in(
    kind: str, low: str, high: str, ends: tuple[float, float]
) -> None:
    schema = {"type": kind, low: min(ends), high: max(ends)}
    near = [Decimal(repr(end)) for end in ends]
    forbids_nothing_less(schema, [n + Decimal(d) for n in near for d in ("0", "1", "-1", "0.001")])


@pytest.mark.parametrize(
    "schema",
    [
        {"exclusiveMinimum": 0, "maximum": 0.5},
        {"exclusiveMinimum": 0, "exclusiveMaximum": 0.06},
        {"minimum": -0.6, "exclusiveMaximum": 0},
        {"minimum": -1.6, "exclusiveMaximum": -1},
        {"exclusiveMinimum": 99, "exclusiveMaximum": 99.99},
    ],
)
def test_an_integer_that_is_excluded_is_not_let_in(schema: dict[str, Any]) -> None:
    bounds = [Decimal(repr(bound)) for bound in schema.values()]
    forbids_nothing_less({"type": "number", **schema}, bounds)
    inside = sum(bounds) / 2
    assert allows({"type": "number", **schema}, f"{inside:f}")


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("bound", [2**53 + 1, 2**53 + 3, 2**60 + 1, 2**62 + 1, 10**18 - 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_are_rounded_inward(kind: str, bound: int, sign: int) -> None:
    least, most = sorted((sign * bound, sign * (bound + 4096)))
    schema = {"type": kind, "minimum": least, "maximum": most}
    near = [end + step for end in (least, most) for step in range(-3, 4)]
    for number in near:
        assert least <= number <= most or not allows(schema, str(number)), (schema, number)
    assert allows(schema, str((least + most) // 2))


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"minimum": LEAST, "maximum": MOST}, [0, -(10**17), MOST], [MOST + 1, LEAST - 1]),
        ({"minimum": LEAST}, [0, 10**15, -(10**17)], [LEAST - 1]),
        ({"minimum": 0, "maximum": 2**64 - 1}, [0, 10**18, MOST], [2**64, -1]),
        ({"minimum": -(10**40), "maximum": 10**40}, [-5, 10**18], [-(10**41), 10**41]),
    ],
)
def test_bounds_of_whole_types_are_taken(
    schema: dict[str, Any], inside: list[int], outside: list[int]
) -> None:
    whole = {"type": "integer", **schema}
    assert all(allows(whole, str(number)) for number in inside)
    assert not any(allows(whole, str(number)) for number in outside)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"const": 2**60 + 1}, "/const"),
        ({"const": LEAST}, "/const"),
        ({"const": {"a": [1, LEAST]}}, "/const"),
        ({"enum": [1, 2**64 - 1]}, "/enum"),
        ({"const": 10**400}, "/const"),
        ({"properties": {"a/b": {"enum": [-(2**60) - 1]}}}, "/properties/a~1b/enum"),
        ({"anyOf": [{}, {"const": 2**53 + 1}]}, "/anyOf/1/const"),
        ({"type": "integer", "minimum": 2**63}, "/minimum"),
        ({"type": "integer", "minimum": LEAST, "maximum": LEAST}, "/maximum"),
        ({"exclusiveMaximum": LEAST - 1}, "/exclusiveMaximum"),
        ({"type": "integer", "minimum": 1e19, "maximum": 1e20}, "/minimum"),
    ],
)
def test_what_would_be_another_number_is_refused(schema: dict[str, Any], where: str) -> None:
    """Among them a constant that would end the process."""
    with pytest.raises(RequestError) as caught:
        COMPILER.constraints(Structure("json_schema", json.dumps(schema)), 1)
    assert caught.value.where == f"json_schema, at {where}"


@pytest.mark.parametrize(
    "number", [0, -1, 2**53, 2**60, MOST, LEAST + 1024, 10**22, 10**30, 0.1, 1e300, -2.5e-7]
)
def test_constants_that_are_kept(number: float) -> None:
    assert allows({"const": number}, f"{Decimal(repr(number)):f}")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 1, "maximum": 9},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"properties": {"const": {"minimum": 3}, "enum": {"type": "integer"}}, "required": ["a"]},
        {"default": 2**60 + 1, "examples": [LEAST], "enum": ["a", True]},
        {"minimum": "3", "exclusiveMinimum": True, "maximum": None},
    ],
)
def test_other_schemas_stay_as_they_are(schema: dict[str, Any]) -> None:
    assert exact_numbers(schema, "") is schema
