"""Schemas whose texts llguidance cannot end are refused before the first token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from optc.errors import RequestError
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.structure import Structure
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level

COMPILER = GrammarCompiler(Tokenizer(byte_level()), 259, [1])
NUMBER = {"type": "integer"}
NAMED = {"score": NUMBER, "t/a.g": NUMBER}


def closed(pattern: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": NAMED,
        "patternProperties": {pattern: NUMBER},
        "additionalProperties": False,
        **more,
    }


def compile_schema(schema: object) -> None:
    COMPILER.constraints(Structure("json_schema", json.dumps(schema)), 1)


@pytest.mark.parametrize(
    "pattern", ["^score$", "^(score)$", "^sco[r]e$", "^t/a\\.g$", "^(score|t\\/a\\.g)$"]
)
def test_patterns_of_named_keys_alone_are_refused(pattern: str) -> None:
    for schema, where in (
        (closed(pattern), "json_schema"),
        ({"type": "array", "items": closed(pattern)}, "json_schema, at /items"),
        (
            {"type": "object", "properties": {"a/b": closed(pattern)}},
            "json_schema, at /properties/a~1b",
        ),
    ):
        with pytest.raises(RequestError) as caught:
            compile_schema(schema)
        assert caught.value.message == f"the keys that match {pattern!r} are properties"
        assert caught.value.where == where


@pytest.mark.parametrize("pattern", ["^s", "score", "^score", "score$", "^t/", "^x$", "^[a-z]+$"])
def test_patterns_of_other_keys_are_taken(pattern: str) -> None:
    compile_schema(closed(pattern))


def test_other_keys_make_an_end() -> None:
    compile_schema(closed("^score$", additionalProperties=NUMBER))
    compile_schema({"const": closed("^score$")})
    compile_schema({**closed("^x$"), "patternProperties": {}})


@pytest.mark.parametrize(
    ("least", "required", "taken"),
    [(0, [], True), (1, [], True), (2, [], False), (2, ["score"], True), (3, ["score"], False)],
)
def test_keys_that_may_be_written_twice(least: int, required: list[str], taken: bool) -> None:
    named = {"properties": dict.fromkeys(required, NUMBER), "required": required}
    schema = {"type": "object", "additionalProperties": NUMBER, "minProperties": least, **named}
    if taken:
        compile_schema(schema)
        return
    with pytest.raises(RequestError) as caught:
        compile_schema(schema)
    assert caught.value.message == (
        f"minProperties={least} with {len(required)} required properties: keys may be written twice"
    )
