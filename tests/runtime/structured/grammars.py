"""Grammars over byte-level tokenizers, and the plain statement of decoding under one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import llguidance
import numpy as np

from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import Mask, Row, Sampled, sample
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.toy import ToyModel, naive_logits

#: Structures, and whether a text is one of their texts, without llguidance.
STRUCTURES: tuple[tuple[dict[str, Any], Callable[[str], object]], ...] = (
    ({"regex": "(ab|é)+[0-9]{2,4}"}, re.compile("(ab|é)+[0-9]{2,4}").fullmatch),
    ({"regex": "[🙂ж]{1,3}-a forced end 🙃"}, re.compile("[🙂ж]{1,3}-a forced end 🙃").fullmatch),
    ({"choice": ["red", "reddish", "dark ré"]}, lambda t: t in ("red", "reddish", "dark ré")),
    (
        {"grammar": 'start: "(" item ("," item)* ")"\nitem: /[a-c]/ | start'},
        lambda t: set(t) <= set("(),abc") and t.count("(") == t.count(")") > 0,
    ),
)


def words(tokenizer: Tokenizer, vocab: int) -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(tokenizer.backend.to_str(), n_vocab=vocab, eos_token=[1])


def matcher(tokenizer: llguidance.LLTokenizer, asked: dict[str, Any]) -> llguidance.LLMatcher:
    """At the beginning of one of `STRUCTURES`."""
    ((kind, text),) = asked.items()
    texts = json.dumps(text) if kind == "choice" else text
    form = "lark" if kind == "grammar" else kind
    grammar = llguidance.grammar_from(form, texts)
    return llguidance.LLMatcher(tokenizer, grammar, log_level=0)


def mask_of(at: llguidance.LLMatcher) -> Mask:
    return np.frombuffer(at.compute_bitmask(), np.uint32)


def decode_naively(
    model: ToyModel,
    at: llguidance.LLMatcher,
    prompt: list[int],
    params: SamplingParams,
    seed: int,
    index: int = 0,
) -> list[int]:
    """Token by token with a mask for each, nothing forced, drafted, batched or cached."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + (params.max_tokens or 0) and not at.is_stopped():
        row = Row(params, seed, index, np.array(tokens, np.int32), len(prompt), mask_of(at))
        (drawn,) = sample(naive_logits(model, tokens)[None], [row])
        assert isinstance(drawn, Sampled)
        assert at.consume_token(drawn.token)
        tokens.append(drawn.token)
    return tokens[len(prompt) :]
