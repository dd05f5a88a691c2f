"""Structured output whose texts contain names of added tokens: there, they are ordinary text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from optc.errors import RequestError
from optc.proof.conversations.token_bytes import TokenBytes
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import Sampled, unpacked
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.structure import Structure
from optc.runtime.text.tokenizer import Tokenizer, read_tokenizer
from tests.runtime.support.texts import byte_fallback, byte_level

PYCODE = Path(__file__).parents[3] / "examples/models/pycode/tokenizer.json"
#: Its template makes the plain added token <|im_start|> a control token, and not <think>.
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}"


def templated() -> Tokenizer:
    built = byte_level()
    built.add_tokens([tokenizers.AddedToken(text) for text in ("<|im_start|>", "<think>")])
    return Tokenizer(built, chat_template=TEMPLATE)


TOKENIZERS = {
    "bytes": templated(),
    "fallback": Tokenizer(byte_fallback()),
    "pycode": Tokenizer(read_tokenizer(PYCODE)),
}
#: The token </s> or its like, which ends texts.
END = 1
NAMES = [
    (kind, token.content)
    for kind, tokenizer in TOKENIZERS.items()
    for token in tokenizer.backend.get_added_tokens_decoder().values()
]


def asked_for(text: str) -> list[dict[str, Any]]:
    """Every kind of structure that has ``text``, a JSON text, as one of its texts or its only."""
    return [
        {"choice": [text]},
        {"choice": [text, f"{text}zz", "other"]},
        {"regex": re.escape(text)},
        {"regex": f'{re.escape(text)}|"b"'},
        {"grammar": f"start: {json.dumps(text)}"},
        {"json_schema": {"enum": [json.loads(text)]}},
        {"json_schema": {"type": "string", "minLength": 3}},
    ]


@pytest.mark.parametrize(("kind", "name"), NAMES)
@pytest.mark.parametrize("around", ["{}", "a{}b", "{}x{}"])
def test_names_of_tokens_are_text(kind: str, name: str, around: str) -> None:
    tokenizer = TOKENIZERS[kind]
    text = json.dumps(around.format(name, name))
    size = tokenizer.backend.get_vocab_size()
    table, special = TokenBytes(tokenizer, size), set(tokenizer.control.ids.values())
    for asked in asked_for(text):
        structure = SamplingParams(**asked).structure
        assert structure is not None
        (constraint,) = GrammarCompiler(tokenizer, size, [END]).constraints(structure, 1)
        out: list[int] = []
        while (written := table.of(out)) != text.encode():
            assert text.encode().startswith(written), asked
            allowed = set(np.flatnonzero(unpacked(constraint.mask_after([]), size)).tolist())
            assert not special & allowed - {END}, asked
            nexts = table.beginnings(text.encode()[len(written) :])
            token = [one for one in nexts if one in allowed - special][-1]
            drawn = constraint.follow([Sampled(token, None)], SamplingParams())
            assert not constraint.error, asked
            out += [one.token for one in drawn if isinstance(one, Sampled)]
        assert tokenizer.decode(out).strip() == text, asked
        assert constraint.ended or unpacked(constraint.mask_after([]), size)[END]


def test_a_grammar_may_still_ask_for_control_tokens() -> None:
    lark = 'start: "<pad>" <pad> /<pad>\\/"x/ <|im_start|> // <s> "\n'
    tokenizer = TOKENIZERS["bytes"]
    (constraint,) = GrammarCompiler(tokenizer, 261, [END]).constraints(
        Structure("grammar", lark), 1
    )
    start = tokenizer.backend.token_to_id("<|im_start|>")
    pad, slash = tokenizer.encode("<pad>"), tokenizer.encode('<pad>/"x')
    for token in [*pad, 2, *slash, start]:
        drawn = constraint.follow([Sampled(token, None)], SamplingParams(logprobs=0))
        assert drawn == [Sampled(token, None)], constraint.error
    assert constraint.ended


def test_messages_have_the_names_that_users_know() -> None:
    compiler = GrammarCompiler(TOKENIZERS["bytes"], 261, [END])
    with pytest.raises(RequestError) as caught:
        compiler.constraints(Structure("grammar", "start: <nope>"), 1)
    assert "<nope>" in str(caught.value)
    assert re.search("[0-9a-f]{32}", str(caught.value)) is None
