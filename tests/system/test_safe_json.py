from __future__ import annotations

import json
import math

import pytest

from optc.system.safe_json import MAX_DEPTH, JSONError, parse_json


@pytest.mark.parametrize(
    "value",
    [{"a": [1, 2.5, None, True, "é\n\U0001f600"]}, [], 0, "text", -1e300, 10**30, {"a": {"a": {}}}],
)
def test_plain_json_is_read_as_python_reads_it(value: object) -> None:
    assert parse_json(json.dumps(value)) == value  # characters above 127 are escaped
    assert parse_json(json.dumps(value, ensure_ascii=False).encode()) == value
    assert parse_json(b"\xef\xbb\xbf" + json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested more than 100 deep"),
        ('{"a":' * 100_000, "nested more than 100 deep"),
        ("[" * 500 + "]" * 500, "nested more than 100 deep"),
        ('{"a": NaN}', "it holds NaN, which is no JSON number"),
        ("[-Infinity]", "it holds -Infinity"),
        ("1e999", "the number 1e999 is too large"),
        ("9" * 5000, "4300"),
        (r'{"a": "\ud800"}', r"the text '\\ud800' holds half of a surrogate pair"),
        (r'{"\udfff": 1}', "half of a surrogate pair"),
        (r'["\ud800\u0041"]', "half of a surrogate pair"),
        ('["\ud800"]', "half of a surrogate pair"),
        (b'["\xff"]', "it is not UTF-8 at byte 2"),
        (b"\xff\xfe[\x00", "it is not UTF-8 at byte 0"),
        ("", "Expecting value"),
        ("{} {}", "Extra data"),
        ("{'a': 1}", "Expecting property name"),
    ],
)
def test_what_is_no_safe_json_is_one_error(text: bytes | str, message: str) -> None:
    with pytest.raises(JSONError, match=message):
        parse_json(text)


def test_the_deepest_json_that_is_read() -> None:
    parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(JSONError, match="nested"):
        parse_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(parse_json("[" + "[]," * 1000 + "{}]")) == 1001


def test_escaped_pairs_of_surrogates_are_characters() -> None:
    assert parse_json(r'"\ud83d\ude00"') == "\U0001f600"


def test_a_text_may_be_too_long() -> None:
    assert parse_json("[1]", max_bytes=3) == [1]
    with pytest.raises(JSONError, match="4 bytes, more than the 3 that are read"):
        parse_json("[10]", max_bytes=3)


def test_keys_may_have_to_be_unique() -> None:
    twice = '{"a": 1, "b": {"c": 1, "d": 0, "c": 2}}'
    assert parse_json(twice) == {"a": 1, "b": {"c": 2, "d": 0}}
    with pytest.raises(JSONError, match="the key 'c' twice"):
        parse_json(twice, unique_keys=True)
    assert parse_json('{"a": {"a": 1}}', unique_keys=True) == {"a": {"a": 1}}


def test_numbers_that_are_not_finite_may_be_allowed() -> None:
    nan, infinity, large = parse_json("[NaN, Infinity, 1e999]", finite=False)
    assert math.isnan(nan)
    assert infinity == large == math.inf
