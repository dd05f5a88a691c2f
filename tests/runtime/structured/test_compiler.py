"""The compiler of grammars: what each kind of structure allows, and what is kept."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import tokenizers

from optc.errors import RequestError, UnavailableError
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import NoToken, Sampled
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.structure import Kind, Structure
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import byte_level

BYTES = byte_level()
TOKENIZER = Tokenizer(BYTES)


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(TOKENIZER, 259, [1])


def allows(compiler: GrammarCompiler, structure: Structure, text: str) -> bool:
    """True if a text is a whole text of the structure: its tokens, then the end token."""
    (constraint,) = compiler.constraints(structure, 1)
    params = SamplingParams(logprobs=1)  # forces nothing
    for token in (*BYTES.encode(text).ids, 1):
        if constraint.ended:
            return token == 1
        if NoToken.NOTHING_ALLOWED in constraint.follow([Sampled(token, None)], params):
            return False
    return True


SCHEMA = {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "null"}}}


@pytest.mark.parametrize(
    ("kind", "text", "good", "bad"),
    [
        ("regex", "a+b", "aab", "b"),
        ("choice", '["a", "b\\"c"]', 'b"c', "c"),
        ("grammar", 'start: "x" | "y" start', "yyx", "yy"),
        ("json_schema", json.dumps(SCHEMA), '{"a": [1, 2], "b": null}', '{"b": 1}'),
        ("json_schema", json.dumps(SCHEMA), "{}", '{ "a":[]}'),
        (
            "json_schema",
            json.dumps(SCHEMA | {"x-guidance": {"key_separator": ":", "item_separator": ","}}),
            '{"a":[1,2],"b":null}',
            '{"a": []}',
        ),
    ],
)
def test_each_kind(compiler: GrammarCompiler, kind: Kind, text: str, good: str, bad: str) -> None:
    structure = Structure(kind, text)
    assert allows(compiler, structure, good)
    assert not allows(compiler, structure, bad)


def test_masks_hold_all_tokens_of_the_tokenizer_and_of_the_model() -> None:
    for vocab, words in ((10, 9), (259, 9), (300, 10), (320, 10), (321, 11)):
        compiler = GrammarCompiler(TOKENIZER, vocab, [1])
        (constraint,) = compiler.constraints(Structure("regex", "a"), 1)
        assert constraint.mask_words == words


def test_added_tokens_count() -> None:
    built = byte_level()
    built.add_tokens([tokenizers.AddedToken(f"<{i}>") for i in range(40)])
    compiler = GrammarCompiler(Tokenizer(built), 10, [1])
    (constraint,) = compiler.constraints(Structure("regex", "a"), 1)
    assert constraint.mask_words == 10


def test_the_end_tokens_are_the_models() -> None:
    for ends in ([1], [1, 2]):
        (constraint,) = GrammarCompiler(TOKENIZER, 259, ends).constraints(
            Structure("regex", "a?"), 1
        )
        mask = constraint.mask_after([])
        allowed = [token for token in range(259) if mask[token // 32] >> (token % 32) & 1]
        assert allowed == [*ends, BYTES.token_to_id("a")]


def test_completions_have_a_state_each(compiler: GrammarCompiler) -> None:
    structure = Structure("choice", '["a"]')
    first, second, third = compiler.constraints(structure, 3)
    first.follow([Sampled(BYTES.token_to_id("a"), None)], SamplingParams())
    (later,) = compiler.constraints(structure, 1)
    assert [each.ended for each in (first, second, third, later)] == [True, False, False, False]


def counted(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are compiled from now on."""
    compiled: list[str] = []
    compile_one = compiler._compile

    def note(structure: Structure) -> Any:
        compiled.append(structure.text)
        return compile_one(structure)

    monkeypatch.setattr(compiler, "_compile", note)
    return compiled


def test_the_latest_sixty_four_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = GrammarCompiler(TOKENIZER, 259, [1])
    compiled = counted(compiler, monkeypatch)
    texts = [f"a{{{n}}}" for n in range(1, 66)]
    for text in [*texts[:64], *texts[:64], texts[0]]:
        compiler.constraints(Structure("regex", text), 1)
    assert compiled == texts[:64]
    for text in (texts[64], texts[0], texts[2], texts[1]):
        compiler.constraints(Structure("regex", text), 1)
    assert compiled[64:] == [texts[64], texts[1]], "the one that was not used for longest goes"


def test_the_tokenizer_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = GrammarCompiler(TOKENIZER, 259, [1])
    built: list[int] = []
    build = compiler._build_tokenizer

    def note() -> Any:
        built.append(1)
        return build()

    monkeypatch.setattr(compiler, "_build_tokenizer", note)
    for text in "abc":
        compiler.constraints(Structure("regex", text), 1)
    assert built == [1]


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        (Structure("regex", "(a"), "regex, character 0: unclosed group"),
        (
            Structure("json_schema", '{"properties": {"a": {"type": "strin"}}}'),
            "json_schema, at /properties/a: Invalid type: strin",
        ),
        (Structure("grammar", "start: a\na: a"), "grammar: it allows no text from here"),
    ],
)
def test_wrong_structures_are_refused_and_not_kept(
    compiler: GrammarCompiler, structure: Structure, message: str
) -> None:
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            compiler.constraints(structure, 1)
        assert str(caught.value) == message


def test_schemas_that_are_nested_too_deeply_are_refused(compiler: GrammarCompiler) -> None:
    text = '{"items": ' * 400 + "{}" + "}" * 400
    with pytest.raises(RequestError, match="recursion limit exceeded") as caught:
        compiler.constraints(Structure("json_schema", text), 1)
    assert caught.value.where == "json_schema"


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UnavailableError) as caught:
        GrammarCompiler(TOKENIZER, 259, [1]).constraints(Structure("regex", "a"), 1)
    assert str(caught.value) == (
        "optc: structured output needs the package 'llguidance' (pip install 'optc[structured]')"
    )


def test_a_decoder_that_is_not_understood_is_named() -> None:
    built = byte_level()
    for decoder, name in ((tokenizers.decoders.Metaspace(), "Metaspace"), (None, "None")):
        built.decoder = decoder
        with pytest.raises(RequestError) as caught:
            GrammarCompiler(Tokenizer(built), 259, [1]).constraints(Structure("regex", "a"), 1)
        assert caught.value.message == (
            "no structured output with this model's tokenizer: its decoder, "
            f"{name}, does not say what bytes are"
        )


def test_a_tokenizer_that_is_not_understood_is_an_error() -> None:
    """Unigram has no bytes that tokens stand for."""
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0))
    compiler = GrammarCompiler(Tokenizer(unigram), 2, [1])
    with pytest.raises(RequestError) as caught:
        compiler.constraints(Structure("regex", "a"), 1)
    assert str(caught.value).startswith(
        "sampling parameters: no structured output with this model's tokenizer: "
    )
