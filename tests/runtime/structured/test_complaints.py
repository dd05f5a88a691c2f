"""What becomes of llguidance's messages, from texts as it writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from optc.runtime.structured.complaints import complaint, reason
from optc.runtime.structured.structure import Structure

UNCLOSED = "regex parse error:\n    {}\n    {}^\nerror: unclosed group"


def unused(schema: str) -> str:
    raise AssertionError("no schema is wrong here")


def about(kind: Any, text: str, message: str) -> str:
    return str(complaint(Structure(kind, text), message, unused))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("  no such rule\n<state>\n  many internals", "no such rule"),
        ("panic: assertion failed: x < y", "too large to compile"),
        ("panicked: x", "panicked: x"),
        ("NoExtension", "it allows no text from here"),
        ("NoExtensionBias(3)\nmore", "it allows no text from here"),
        ("NoExtensions", "NoExtensions"),
        ("after NoExtension", "after NoExtension"),
        (UNCLOSED.format("ab(", "  "), "unclosed group"),
        ("in rule a: " + UNCLOSED.format("ab(", "  "), "unclosed group"),
        ("", ""),
    ],
)
def test_the_reason_is_one_line_without_internals(message: str, said: str) -> None:
    assert reason(message) == said


def test_a_grammar_says_its_line_and_column() -> None:
    assert about("grammar", "…", "at 3(14): unknown name\nat …") == (
        "grammar, line 3, column 14: unknown name"
    )
    assert about("grammar", "…", "12(1): lexer error") == "grammar, line 12, column 1: lexer error"
    assert about("choice", "[]", "no place 1(2): x") == "choice: no place 1(2): x"


@pytest.mark.parametrize(
    ("regex", "shown", "column", "index"),
    [
        ("ab(", "ab(", 2, 2),
        ("(", "(", 0, 0),
        ("a\nb(", "a\\nb(", 4, 3),
        ("/\n(", "\\/\\n(", 4, 2),
        ("ab(\n", "ab(\\n", 2, 2),
        ("ab", "ab", 2, 2),
        ("ab", "ab   ", 5, 2),
    ],
)
def test_a_regex_says_the_character(regex: str, shown: str, column: int, index: int) -> None:
    message = UNCLOSED.format(shown, " " * column)
    assert about("regex", regex, message) == f"regex, character {index}: unclosed group"


def test_a_regex_without_a_place_says_the_reason() -> None:
    message = 'at 1(8): invalid regex "(in regex): " (in regex): lookarounds\nat 1(8)'
    assert about("regex", "x", message) == "regex: lookarounds"
    assert about("regex", "x", "too deep") == "regex: too deep"


class Validator:
    """Finds every schema with a ``bad`` key anywhere wrong, each in the way that it says."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def __call__(self, schema: str) -> str:
        self.asked.append(json.loads(schema))
        return self.find({k: v for k, v in self.asked[-1].items() if k != "$defs"})

    def find(self, node: object) -> str:
        if isinstance(node, dict):
            found = [self.find(value) for value in node.values()]
            return next(filter(None, [node.get("bad", ""), *found]), "")
        return next(filter(None, map(self.find, node)), "") if isinstance(node, list) else ""


def about_schema(schema: dict[str, Any], message: str = "wrong") -> tuple[str, Validator]:
    validator = Validator()
    error = complaint(Structure("json_schema", json.dumps(schema)), message, validator)
    return str(error), validator


BAD = {"bad": "wrong"}


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        (BAD, ""),
        ({"items": BAD}, ", at /items"),
        ({"a": {"b": [{}, {"c": BAD}]}}, ", at /a/b/1/c"),
        ({"a": {"bad": "otherwise"}, "b": BAD}, ", at /b"),
        ({"a": BAD, "b": BAD}, ", at /a"),
        ({"a": {"x": BAD}, "ab": {"x": BAD}}, ", at /a/x"),
        ({"a/b~c": BAD}, ", at /a~1b~0c"),
        ({"a": [BAD, 3, None]}, ", at /a/0"),
    ],
)
def test_a_schema_says_the_deepest_part_that_is_wrong(schema: dict[str, Any], where: str) -> None:
    assert about_schema(schema)[0] == f"json_schema{where}: wrong"


def test_parts_are_asked_about_with_the_shared_definitions() -> None:
    schema = {"$defs": {"q": {}}, "definitions": {"r": {}}, "title": "t", "a": BAD}
    said, validator = about_schema(schema)
    assert said == "json_schema, at /a: wrong"
    shared = {"$defs": {"q": {}}, "definitions": {"r": {}}}
    assert shared | BAD in validator.asked
    assert all("title" not in asked for asked in validator.asked)


@pytest.mark.parametrize(("before", "where"), [(498, ", at /bad part"), (499, ""), (520, "")])
def test_only_so_many_parts_are_looked_at(before: int, where: str) -> None:
    schema = {f"p{i}": {} for i in range(before)} | {"bad part": BAD}
    said, validator = about_schema(schema)
    assert said == f"json_schema{where}: wrong"
    assert len(validator.asked) <= 500
