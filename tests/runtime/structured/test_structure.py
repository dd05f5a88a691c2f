"""What a request may ask for, and what it is told when that is wrong."""

from __future__ import annotations

import json
import sys
from collections import deque
from typing import Any, Literal, TypedDict

import pydantic
import pytest

from optc.errors import RequestError, UnavailableError
from optc.runtime.engine import Engine
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import Sampled
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.structure import Structure
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level, real_tokenizer
from tests.runtime.support.toy import ToyExecutable, toy_spec


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(Tokenizer(byte_level()), 259, [1])


def complaint(compiler: GrammarCompiler, **asked: Any) -> str:
    structure = SamplingParams(**asked).structure
    assert structure is not None
    with pytest.raises(RequestError) as caught:
        compiler.constraints(structure, 1)
    return str(caught.value)


def test_a_schema_may_be_a_mapping_or_its_text() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    of_mapping, of_text = (
        SamplingParams(json_schema=given).structure for given in (schema, json.dumps(schema))
    )
    assert of_mapping == of_text == Structure("json_schema", json.dumps(schema))


def test_a_schema_that_is_changed_later_does_not_change_the_request() -> None:
    schema: dict[str, Any] = {"type": "string"}
    params = SamplingParams(json_schema=schema)
    schema["type"] = "number"
    assert params.structure == Structure("json_schema", '{"type": "string"}')


class Street(pydantic.BaseModel):
    name: str


class Place(pydantic.BaseModel):
    street: Street
    others: list[Street] = []
    properties: dict[str, int]
    type: Literal["object", "other"]
    note: str | None = None


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    street: Street


def test_a_schema_may_be_a_class_of_pydantics_models() -> None:
    structure = SamplingParams(json_schema=Place).structure
    assert structure is not None
    schema = json.loads(structure.text)
    assert schema.pop("additionalProperties") is False
    assert schema["$defs"]["Street"].pop("additionalProperties") is False
    assert schema == Place.model_json_schema()
    assert SamplingParams(json_schema=Place) == SamplingParams(json_schema=structure.text)


def test_a_class_that_allows_other_keys_says_so() -> None:
    structure = SamplingParams(json_schema=Open).structure
    assert structure is not None
    schema = json.loads(structure.text)
    assert schema["additionalProperties"] is True
    assert schema["$defs"]["Street"]["additionalProperties"] is False


def test_what_an_engine_writes_for_a_class_is_an_object_of_it() -> None:
    executable = ToyExecutable(toy_spec((0,), vocab=259, max_context=400))
    with Engine(lambda: executable, tokenizer=Tokenizer(byte_level())) as engine:
        for seed in range(5):
            params = SamplingParams(json_schema=Street, max_tokens=None, seed=seed, top_k=2)
            output = engine.generate("a", params)[0]
            if output.finish_reason == "stop":
                Street.model_validate_json(output.text)
            assert output.text.startswith('{"name": "')


class NotOne:
    """A class without a schema."""


class NoSchema(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    value: NotOne


@pytest.mark.parametrize("kind", [NotOne, dict, TypedDict("T", {"a": int}), NoSchema])
def test_a_class_without_a_schema_says_what_has_one(kind: Any) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(json_schema=kind)
    expected = "NoSchema has no schema: " if kind is NoSchema else "pydantic.TypeAdapter has one"
    assert expected in str(caught.value)


def test_without_a_structure_there_is_none() -> None:
    assert SamplingParams().structure is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"regex": "a", "choice": ["b"]},
            "sampling parameters: regex and choice exclude each other "
            "(give one of json_schema, regex, grammar, choice)",
        ),
        (
            {"regex": "\ud800"},
            "sampling parameters: regex='\\ud800' is not allowed "
            "(must be valid Unicode, without surrogates)",
        ),
        (
            {"grammar": 'start: "\ud800"'},
            "sampling parameters: grammar='start: \"\\ud800\"' is not allowed "
            "(must be valid Unicode, without surrogates)",
        ),
        (
            {"choice": ["a", "\ud800"]},
            "sampling parameters: choice=['a', '\\ud800'] is not allowed "
            "(must be valid Unicode, without surrogates)",
        ),
        ({"regex": ""}, "sampling parameters: regex='' is not allowed (must be a non-empty text)"),
        (
            {"choice": "ab"},
            "sampling parameters: choice='ab' is not allowed (must be a list of non-empty texts)",
        ),
        (
            {"choice": []},
            "sampling parameters: choice=[] is not allowed (must be a list of non-empty texts)",
        ),
        (
            {"choice": ["a", ""]},
            "sampling parameters: choice=['a', ''] is not allowed "
            "(must be a list of non-empty texts)",
        ),
        (
            {"choice": deque([1, 2])},
            "sampling parameters: choice=deque([1, 2]) is not allowed "
            "(must be a list of non-empty texts)",
        ),
        (
            {"json_schema": 3},
            "sampling parameters: json_schema=3 is not allowed "
            "(must be a schema as a mapping or its JSON text, or a class of pydantic's models)",
        ),
        (
            {"json_schema": '{"type":\n  strin}'},
            "json_schema, line 2, column 3: not JSON: Expecting value",
        ),
        ({"json_schema": "[1]"}, "json_schema: not a JSON object"),
        (
            {"json_schema": {"a": {1}}},
            "json_schema: not JSON: Object of type set is not JSON serializable",
        ),
    ],
)
def test_wrong_parameters(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**asked)
    assert str(caught.value) == message


def test_a_schema_may_be_nested_too_deeply() -> None:
    schema: dict[str, Any] = {}
    for _ in range(20_000):
        schema = {"items": schema}
    for given in (schema, '{"items": ' * 200_000):
        with pytest.raises(RequestError) as caught:
            SamplingParams(json_schema=given)
        assert str(caught.value) == "json_schema: nested too deeply"


def test_a_schema_may_be_nested_deeper_than_is_compiled(compiler: GrammarCompiler) -> None:
    text = '{"items": ' * 400 + "{}" + "}" * 400
    assert complaint(compiler, json_schema=text).startswith("json_schema: recursion limit exceeded")


def test_a_choice_may_be_too_large(compiler: GrammarCompiler) -> None:
    structure = Structure("choice", json.dumps([f"c{i}" for i in range(70_000)]))
    with pytest.raises(RequestError) as caught:
        compiler.constraints(structure, 1)
    assert str(caught.value) == "choice: too large to compile"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"choice": ["a"] * 1025},
            "sampling parameters: choice=['a', 'a', 'a', 'a', 'a', 'a', ...",
        ),
        (
            {"choice": ["a" * 8193]},
            "sampling parameters: choice=['aaaaaaaaaaaa...aaaaaaaaaaaaa'] is",
        ),
        ({"choice": ["a" * 8192] * 8}, "choice: 65568 characters (at most 65536: simplify it)"),
        ({"regex": "a" * 8193}, "sampling parameters: regex='aaaaaaaaaaaa...aaaaaaaaaaaaa' is not"),
        ({"grammar": "a" * 65537}, "grammar: 65537 characters (at most 65536: simplify it)"),
        ({"json_schema": {"title": "a" * 65536}}, "json_schema: 65549 characters (at most 65536:"),
    ],
)
def test_structures_that_are_too_large_are_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**asked)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 200


def test_as_many_choices_as_are_allowed_can_be_followed(compiler: GrammarCompiler) -> None:
    structure = SamplingParams(choice=[f"c{i}" for i in range(1024)]).structure
    assert structure is not None
    (constraint,) = compiler.constraints(structure, 1)
    constraint.follow([Sampled(byte_level().token_to_id("c"), None)], SamplingParams())
    assert not constraint.error


DEEP = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/q"}, {"type": "strin"}]}},
        "aa": {"$ref": "#/$defs/q"},
    },
    "$defs": {"q": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objec"}, "json_schema: Invalid type: objec"),
        (DEEP, "json_schema, at /properties/a/items/anyOf/1: Invalid type: strin"),
        ({"$ref": "#/$defs/q"}, "json_schema: Pointer '/$defs/q' does not exist"),
        (
            {"properties": {"a/b": {"not": {}}}},
            'json_schema, at /properties/a~1b: Unimplemented keys: ["not"]',
        ),
        (
            {"items": {"type": "string", "pattern": "(a"}},
            "json_schema, at /items: unclosed group",
        ),
        (
            {"allOf": [{"type": "string"}, {"type": "integer"}]},
            "json_schema: Unsatisfiable schema: incompatible types",
        ),
    ],
)
def test_wrong_schemas(compiler: GrammarCompiler, schema: dict[str, Any], message: str) -> None:
    assert complaint(compiler, json_schema=schema) == message


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        ("(a", "regex, character 0: unclosed group"),
        ("é\\d+(", "regex, character 4: unclosed group"),
        ("/a\n/(b", "regex, character 4: unclosed group"),
        (
            "x[z-a]",
            "regex, character 2: invalid character class range, the start must be <= the end",
        ),
        ("\\w+\\b", "regex: lookarounds not supported yet; WordUnicode in regex /\\w+\\b/"),
    ],
)
def test_wrong_regexes(compiler: GrammarCompiler, regex: str, message: str) -> None:
    assert complaint(compiler, regex=regex) == message


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("start: foo", 'grammar, line 1, column 8: unknown name: "foo"'),
        ('start: a\na: "x" @@', "grammar, line 2, column 9: lexer error"),
        ('strt: "a"', "grammar: no start rule found"),
        ("start: /(a/", "grammar, line 1, column 8: unclosed group"),
        ("start: a\na: a", "grammar: it allows no text from here"),
    ],
)
def test_wrong_grammars(compiler: GrammarCompiler, grammar: str, message: str) -> None:
    assert complaint(compiler, grammar=grammar) == message


def test_each_text_is_compiled_once_and_the_oldest_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiler = GrammarCompiler(Tokenizer(byte_level()), 259, [1])
    compiled: list[str] = []
    compile_one = compiler._compile

    def counted(structure: Structure) -> Any:
        compiled.append(structure.text)
        return compile_one(structure)

    monkeypatch.setattr(compiler, "_compile", counted)
    monkeypatch.setattr("optc.runtime.structured.compiler._KEPT", 3)
    for text in "aabacadabca":
        compiler.constraints(Structure("regex", text), 1)
    assert "".join(compiled) == "abcdbc", "a is used again and again, b and c fall out"
    compiler.constraints(Structure("grammar", 'start: "a"'), 1)
    assert len(compiled) == 7


def test_completions_have_a_state_each(compiler: GrammarCompiler) -> None:
    first, second = compiler.constraints(Structure("choice", '["a"]'), 2)
    params = SamplingParams()
    first.follow([Sampled(byte_level().token_to_id("a"), None)], params)
    assert first.ended
    assert not second.ended


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    fresh = GrammarCompiler(Tokenizer(byte_level()), 259, [1])
    with pytest.raises(UnavailableError) as caught:
        fresh.constraints(Structure("regex", "a"), 1)
    assert str(caught.value) == (
        "optc: structured output needs the package 'llguidance' (pip install 'optc[structured]')"
    )


def test_a_tokenizer_that_is_not_understood_is_an_error() -> None:
    tokenizer = real_tokenizer("t5-small")
    fresh = GrammarCompiler(tokenizer, tokenizer.backend.get_vocab_size(), [1])
    with pytest.raises(RequestError, match="no structured output with this model's tokenizer"):
        fresh.constraints(Structure("regex", "a"), 1)


def test_choices_may_be_any_sequence() -> None:
    assert (
        SamplingParams(choice=deque(["a", "b"])).structure
        == SamplingParams(choice=["a", "b"]).structure
    )
