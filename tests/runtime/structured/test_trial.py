"""Grammars that would take all time and memory, or die in mid-text, are refused within limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from optc.errors import RequestError
from optc.runtime.params import SamplingParams
from optc.runtime.structured import compiler as compiler_module
from optc.runtime.structured import trial
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.harmless import is_harmless
from optc.runtime.structured.structure import Structure
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.structured.grammars import STRUCTURES
from tests.runtime.support.texts import byte_level


def structure(**asked: Any) -> Structure:
    found = SamplingParams(**asked).structure
    assert found is not None
    return found


def compiler() -> GrammarCompiler:
    return GrammarCompiler(Tokenizer(byte_level()), 259, [1])


def integers(*multiples: int) -> dict[str, Any]:
    return {"anyOf": [{"type": "integer", "multipleOf": k} for k in multiples]}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"json_schema": integers(99991, 99989)}, "it does not compile within 1 s and 64 MiB"),
        ({"json_schema": {"type": "integer", "multipleOf": 999983}}, "it does not compile within"),
        ({"regex": "a{100000000}"}, "too many expressions constructed|does not compile"),
        ({"regex": "(((a{1,100}){1,100}){1,100}){1,100}"}, "too many expressions constructed"),
        (
            {"json_schema": {"properties": {f"p{i}": {"type": "null"} for i in range(2000)}}},
            "Current row has",
        ),
    ],
)
def test_refused_before_the_first_token(
    asked: Mapping[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "LIMITS", trial.Limits(1, 64 << 20))
    with pytest.raises(RequestError, match=message) as caught:
        compiler().constraints(structure(**asked), 1)
    assert caught.value.where in asked
    assert caught.value.hint == "simplify it"


def test_what_ends_within_the_limits_is_compiled() -> None:
    asked = {"type": "integer", "multipleOf": 7}
    (constraint,) = compiler().constraints(structure(json_schema=asked), 1)
    assert constraint.mask_after([]).any()


def test_a_system_that_starts_no_processes_compiles_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "child_command", lambda module: ["/no/such/python"])
    (constraint,) = compiler().constraints(structure(json_schema={"multipleOf": 7}), 1)
    assert constraint.mask_after([]).any()


@pytest.mark.parametrize(
    ("asked", "harmless"),
    [
        *((asked, True) for asked, _ in STRUCTURES),
        ({"choice": ["a" * 8000, "&~{9999999}"]}, True),
        ({"regex": "[a-z]{1,100}"}, True),
        ({"regex": "[a-z]{1,}"}, True),
        ({"regex": "([a-z]{1,101}){100}"}, False),
        ({"regex": "a{99999999999999999999}"}, False),
        ({"regex": "a" * 5000}, False),
        ({"grammar": "start: /a+/ & /b+/"}, False),
        ({"grammar": "start: /~a/"}, False),
        ({"grammar": 'start: %json {"multipleOf": 999983}'}, False),
        ({"grammar": 'start: "a" | "b" start'}, True),
        ({"json_schema": {"properties": {"multipleOf": {"type": "integer"}}}}, True),
        ({"json_schema": {"properties": {"a": {"multipleOf": 3}}}}, False),
        ({"json_schema": {"$defs": {"a": {"pattern": "b"}}}}, False),
        ({"json_schema": {"anyOf": [{"type": "null"}, {"maxLength": 10**9}]}}, False),
        ({"json_schema": {"items": {"allOf": []}}}, False),
        ({"json_schema": {"items": {"items": {"enum": [1, "multipleOf"]}}}}, True),
        ({"json_schema": {"additionalProperties": False, "required": ["a"]}}, True),
        ({"json_schema": {"x-guidance": {}}}, False),
    ],
)
def test_what_needs_no_trial(asked: Mapping[str, Any], harmless: bool) -> None:
    assert is_harmless(structure(**asked)) is harmless


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("a" * 4096, True),
        ("a" * 4097, False),
        ("a{10000}", True),
        ("a{10001}", False),
        ("(a{100}){100}", True),
        ("(a{100}){101}", False),
        ("a{0,10000}b{0}", True),
        ("(a{,100}){5,101}", False),
        ("(a{,100}){101,}", False),
    ],
)
def test_limits_of_what_needs_no_trial(text: str, harmless: bool) -> None:
    """Both sides of each."""
    for asked in ({"regex": text}, {"grammar": text}):
        assert is_harmless(structure(**asked)) is harmless


def test_a_wrong_part_is_found_without_compiling_the_others() -> None:
    """`multipleOf` alone would take minutes."""
    schema = {"anyOf": [{"items": integers(99991, 99989)}, {"type": "nothing"}]}
    with pytest.raises(RequestError, match="nothing") as caught:
        compiler().constraints(structure(json_schema=json.dumps(schema)), 1)
    assert caught.value.where.startswith("json_schema")


def test_kept_grammars_are_bounded_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = compiler()
    monkeypatch.setattr(compiler_module, "tried", lambda *_: 200 << 20)
    for multiple in (2, 3, 4):
        tried.constraints(structure(json_schema={"multipleOf": multiple}), 1)
        tried.constraints(structure(choice=["a"]), 1)
    kept = [json.loads(one.text) for one in tried._compiled]
    assert kept == [{"multipleOf": 3}, {"multipleOf": 4}, ["a"]]
