"""Forms of outputs, as OpenAI and vLLM spell them."""

from __future__ import annotations

from typing import Any

import pytest

from optc.errors import InputError
from optc.runtime.openai.structures import has_structure, take_structure

SCHEMA = {"type": "integer"}


@pytest.mark.parametrize(
    ("fields", "structure"),
    [
        ({}, {}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"json_schema": {"type": "object"}}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            {"json_schema": SCHEMA},
        ),
        ({"structured_outputs": None}, {}),
        ({"structured_outputs": {}}, {}),
        ({"structured_outputs": {"json": SCHEMA, "regex": None}}, {"json_schema": SCHEMA}),
        ({"structured_outputs": {"json": '{"a": 1}'}}, {"json_schema": '{"a": 1}'}),
        ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
        ({"structured_outputs": {"choice": ["a"]}}, {"choice": ["a"]}),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, {"grammar": 'start: "a"'}),
        ({"structured_outputs": {"json_object": True}}, {"json_schema": {"type": "object"}}),
        ({"structured_outputs": {"json_object": False, "regex": "a"}}, {"regex": "a"}),
    ],
)
def test_forms(fields: dict[str, Any], structure: dict[str, Any]) -> None:
    given = {**fields, "n": 2}
    assert has_structure(given) is bool(structure)
    assert take_structure(given) == structure
    assert given == {"n": 2}


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"response_format": {}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"response_format": "text"}, "response_format"),
        ({"structured_outputs": "a"}, "structured_outputs"),
        ({"structured_outputs": {"made_up": 1}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "json": SCHEMA}}, "structured_outputs"),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
        ),
    ],
)
def test_what_cannot_be_followed(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError) as found:
        take_structure(dict(fields))
    assert found.value.where == where


def test_parameters_of_its_own_are_a_structure_too() -> None:
    assert has_structure({"regex": "a"})
    assert not has_structure({"stop": "a"})
