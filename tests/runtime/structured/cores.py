"""Cores over the toy model whose requests may have a structure."""

from __future__ import annotations

from typing import Any

import numpy as np

from optc.runtime.executable.executable import StepInterface
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.speculative.proposer import Proposer
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.structured.grammars import words
from tests.runtime.support import traffic
from tests.runtime.support.texts import byte_level
from tests.runtime.support.toy import ToyExecutable, toy_spec

VOCAB = 259
EOS = 1
BYTES = Tokenizer(byte_level())
TOKENS = words(BYTES, VOCAB)
PROMPT = BYTES.encode("ab12, say (a,b): ")
COMPILER = GrammarCompiler(BYTES, VOCAB, [EOS])


def spec_of(windows: tuple[int, ...]) -> StepInterface:
    return toy_spec(windows, vocab=VOCAB, max_logit_rows=20, max_context=80, tree=True)


def make_core(
    spec: StepInterface, proposer: Proposer | None = None, **options: Any
) -> tuple[Core, ToyExecutable]:
    """A core whose texts end (`tests.runtime.support.traffic.make_core`)."""
    return traffic.make_core(spec, proposer, eos_token_ids=[EOS], **options)


def add(
    core: Core,
    prompt: list[int],
    params: SamplingParams,
    index: int = 0,
    leader: Request | None = None,
) -> Request:
    structure = params.structure
    constraint = COMPILER.constraints(structure, 1)[0] if structure else None
    tokens = np.array(prompt, np.int32)
    given = CompletionInput(tokens, params, seed=traffic.SEED, index=index, constraint=constraint)
    return core.add(given, leader)
