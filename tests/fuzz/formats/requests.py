"""Requests: prompts, sampling parameters and terms, as a program may hand them in by mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np

from tests.fuzz.edits import edit_json, edit_text
from tests.fuzz.form import Files, Format, Materials, expect
from tests.fuzz.odd import NUMBERS, TEXTS, odd_container, words
from tests.fuzz.odd_objects import odd_object

#: What is asked for: the call, the prompt, and keyword arguments of parameters and terms.
Request = dict[str, Any]

_CONTEXT, _VOCAB = 48, 264
_CALLS = ("submit", "submit", "stream", "generate", "cancel")
_SCHEMAS = (
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "array", "items": {"enum": ["x", 1, None]}, "maxItems": 2},
    {
        "anyOf": [{"type": "string", "maxLength": 3}, {"$ref": "#/$defs/n"}],
        "$defs": {"n": {"const": 1}},
    },
    {"type": "string", "pattern": "^[a-c]{2}$", "format": "date"},
)
_SCHEMA_KEYS: dict[str, list[Any]] = {
    "$ref": ["#", "#/$defs/n", "#/x", "http://x/y", 1],
    "allOf": [[{"$ref": "#"}], [], [{"type": "string"}, {"type": "integer"}]],
    "maxLength": [0, -1, 10**9, 1.5],
    "minItems": [10**9, -1],
    "pattern": ["(", "(?=a)", "(a*)*b", "\\1", "[z-a]", "a{99999}"],
    "minimum": [10**30, float("nan")],
    "multipleOf": [0, -1, 1e-300],
    "x-guidance": [{}, {"whitespace_pattern": "("}, 1],
    "properties": [{"a": {"$ref": "#"}}, [], {"": True}],
    "type": ["null", ["string", "null"], "x", []],
}
_REGEXES = ("[a-c]+", "(foo|bar){1,3}", "\\d{2}-\\d{2}", "é|日")
_REGEX_WORDS = words(r"""
( ) [ ] {9999} {2,1} * + ? | ^ $ \ \1 (?i) (?=a) (?<n>a) (a*)* (a|a)* .{1,500} \p{L} \x{110000}
[^\x00-\U0010ffff] (?R)
""")
_GRAMMARS = (
    'start: "a" b*\nb: "x" | /[0-9]+/\n',
    'start: expr\nexpr: NUM | expr "+" NUM\nNUM: /[0-9]+/\n%ignore /[ ]+/\n',
)
_GRAMMAR_WORDS = """start:
start: start
x: x x
%ignore //
%import common.INT
%json {}
/(/
/a{9999}/
"
|
[
]
*
~ 5
~ 1..9999999
<s>
<[1]>
->
?
!
{""".splitlines()
#: Fields of the parameters and what they may hold, besides odd values.
_FIELDS: dict[str, tuple[Any, ...]] = {
    "max_tokens": (1, 3, None, 100),
    "temperature": (0.0, 0.7, 1, 1e-300, 1e300),
    "top_p": (0.5, 1.0, 1e-12),
    "top_k": (1, -1, 5, 10**9),
    "min_p": (0.1, 1.0),
    "typical_p": (0.5, 1e-12),
    "seed": (0, 1, 2**64 - 1),
    "stop": ("a", ["ab", "c"], ["x"] * 64),
    "stop_token_ids": ([5], (1, 2), [_VOCAB - 1]),
    "logprobs": (0, 3, 100),
    "repetition_penalty": (1.1, 1e-30, 1e30),
    "presence_penalty": (0.5, -1e30, 1e38),
    "frequency_penalty": (0.5, 1e38),
    "logit_bias": ({5: 1.0}, {5: float("-inf")}, dict.fromkeys(range(_VOCAB), -3e38)),
    "beam_width": (1, 2, 4),
    "length_penalty": (0.0, 2.0, -1e300, 1e300),
    "early_stopping": (True, False, "never"),
    "n": (1, 2, 9),
    "ignore_eos": (True, False),
    "json_schema": _SCHEMAS,
    "regex": _REGEXES,
    "grammar": _GRAMMARS,
    "choice": (["a", "b"], ("foo", "foobar"), ["é"]),
}
_TERMS: dict[str, tuple[Any, ...]] = {
    "salt": ("a", ""),
    "priority": (1, -1, 10**30),
    "adapter": (None, "x"),
    "deadline_s": (None, 10.0, 1e-9),
}
_PROMPTS = ("def f(x):", "日本 🙂", [2, 3, 4], (5,), np.array([7, 8]), [_VOCAB - 1], "a" * 40)


class Requests(Format[Request]):
    """Requests to an engine of the toy model, which must go on serving whatever they are."""

    name = "request"

    def prepare(self, materials: Materials) -> None:
        import llguidance  # noqa: F401 - imported once, before workers are forked

        import optc.runtime.engine  # noqa: F401

    def open(self, folder: Path) -> None:
        from optc.runtime.engine import Engine
        from optc.runtime.text.tokenizer import Tokenizer
        from tests.runtime.support.texts import byte_level
        from tests.runtime.support.toy import ToyExecutable, toy_spec

        spec = toy_spec((0, 6), vocab=_VOCAB, max_context=_CONTEXT)
        tokenizer = Tokenizer(byte_level(), bos_token_id=0)
        self.engine = Engine(
            lambda: cast("Any", ToyExecutable(spec)), tokenizer=tokenizer, eos_token_ids=(1,)
        )

    def sample(self, random: Random) -> Request:
        params = {"max_tokens": 3, "temperature": random.choice((0.0, 1.0))}
        return {
            "call": random.choice(_CALLS),
            "prompt": random.choice(_PROMPTS),
            "params": params,
            "terms": {},
        }

    def edit(self, random: Random, value: Request) -> Request:
        kind = random.randrange(6)
        if kind == 0:
            return {**value, "prompt": _any(random, _PROMPTS)}
        if kind == 1:
            name = random.choice(sorted(_TERMS))
            return {**value, "terms": {**value["terms"], name: _any(random, _TERMS[name])}}
        params = value["params"] if isinstance(value["params"], dict) else {}
        if kind == 2 and random.random() < 0.1:
            return {**value, "params": random.choice(([params], [params] * 3, odd_object(random)))}
        if kind == 3:
            return {**value, "params": {**params, **_structure(random)}}
        name = random.choice(sorted(_FIELDS))
        return {**value, "params": {**params, name: _any(random, _FIELDS[name])}}

    def run(self, value: Request) -> None:
        from optc.runtime.params import SamplingParams

        try:
            given = value["params"]
            if isinstance(given, dict) and set(given) <= set(_FIELDS):
                given = SamplingParams(**given)
            elif isinstance(given, list) and all(isinstance(one, dict) for one in given):
                given = [SamplingParams(**one) for one in given]
            self._call(value["call"], value["prompt"], given, value["terms"])
        finally:
            params = SamplingParams(max_tokens=1, temperature=0.0)
            (after,) = self.engine.generate([[2, 3]], params)
            expect(after.finish_reason == "length", "the next request failed", after)

    def _call(self, call: str, prompt: Any, params: Any, terms: dict[str, Any]) -> None:
        if call == "generate":
            for output in self.engine.generate([prompt, [2, 3]], params, **terms):
                output.raise_for_error()
            return
        handle = self.engine.submit(prompt, params, **terms)
        if call == "cancel":
            handle.cancel()
        if call == "stream":
            for _ in handle:
                pass
        result = handle.result()
        expect(result.finish_reason != "error", "it was accepted and failed", result)

    def shown(self, value: Request) -> Files:
        lines = (f"{key}: {_repr(part)}" for key, part in value.items())
        return {"request.txt": "\n".join(lines).encode("utf-8", "backslashreplace")}


def _any(random: Random, usual: tuple[Any, ...]) -> Any:
    """A usual value, or an odd one of any type."""
    kind = random.randrange(8)
    if kind < 2:
        return random.choice(usual)
    if kind < 3:
        return random.choice(NUMBERS)
    if kind < 4:
        return random.choice(TEXTS)
    if kind < 5:
        return odd_container(random)
    return odd_object(random)


def _structure(random: Random) -> dict[str, Any]:
    """Structured output whose description is changed in some places."""
    kind = random.choice(("json_schema", "regex", "grammar", "choice"))
    if kind == "json_schema":
        text = json.dumps(random.choice(_SCHEMAS)).encode()
        return {kind: _edited(random, text, lambda data: edit_json(random, data, _SCHEMA_KEYS))}
    if kind == "choice":
        return {kind: random.choices(TEXTS, k=random.randint(1, 5))}
    texts, words = (_REGEXES, _REGEX_WORDS) if kind == "regex" else (_GRAMMARS, _GRAMMAR_WORDS)
    text = random.choice(texts).encode()
    return {kind: _edited(random, text, lambda data: edit_text(random, data, words))}


def _edited(random: Random, data: bytes, edit: Callable[[bytes], bytes]) -> str:
    for _ in range(random.randint(1, 3)):
        data = edit(data)
    return data.decode("utf-8", random.choice(("surrogateescape", "replace")))


def _repr(value: Any) -> str:
    try:
        return repr(value)[:100_000]
    except ValueError:  # integers of thousands of digits
        return f"({type(value).__name__})"
