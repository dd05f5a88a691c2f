"""Prompts of the trained example are scored as transformers' logits have it, and the same whatever
the engine does besides."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import optc
from optc.runtime.scoring.prompt_logprobs import PromptLogprobs

MODEL = Path(__file__).parents[3] / "examples/models/pycode"
TEXTS = (
    "def add(first, second):\n    return first + second\n\n\ndef sub(first, second):\n    return",
    "def add(first, second):\n    return first + second\n\n\nclass Reader:\n    def __init__(self",
    "import os\nimport sys\n\n\nfor name in sorted(os.listdir(sys.argv[1])):\n    print(name)\n",
)
SCORE = optc.SamplingParams(max_tokens=0, prompt_logprobs=3)


def scores(engine: optc.Engine, *, batched: bool) -> list[PromptLogprobs]:
    if batched:
        other = engine.submit("try:\n    import", optc.SamplingParams(max_tokens=40))
        outputs = engine.generate(TEXTS, SCORE)
        other.result()
    else:
        outputs = [engine.generate([text], SCORE)[0] for text in TEXTS]
    found = [output.prompt_logprobs for output in outputs]
    assert all(one is not None for one in found)
    return [one for one in found if one is not None]


@pytest.mark.parametrize("kv", ["int8", pytest.param("float32", marks=pytest.mark.long)])
def test_scores_are_the_same_whatever_the_engine_does(
    kv: str, drafting_artifact: Callable[[str], Path]
) -> None:
    """Bit for bit: in chunks, from cached prefixes, beside others, where drafts are made."""
    kinds = ["off", "medusa", "draft", *(["eagle"] if kv == "int8" else [])]
    expected: list[PromptLogprobs] = []
    for speculate, budget, cached in itertools.product(kinds, (None, 12), (False, True)):
        with optc.load(
            drafting_artifact(kv),
            speculate=speculate,
            token_budget=budget,
            prefix_cache=cached,
            block_size=16,
            num_speculative_tokens=2 if speculate != "off" else None,
            verify="size",
        ) as engine:
            alone = scores(engine, batched=False)
            expected = expected or alone
            assert alone == expected
            assert scores(engine, batched=True) == expected
            whole = engine.generate(TEXTS[:1], SCORE.changed(max_tokens=8, n=2, temperature=0.0))[0]
            assert whole.prompt_logprobs == expected[0]
            assert len({one.token_ids for one in whole.completions}) == 1


def test_scores_are_those_of_transformers(exact_artifact: Path) -> None:
    """Log-probabilities, ranks and likeliest tokens of every position, by float32 logits."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    with optc.load(exact_artifact) as engine:
        for text, found in zip(TEXTS, scores(engine, batched=True), strict=True):
            ids = tokenizer(text, return_tensors="pt").input_ids
            assert found.token_ids.tolist() == ids[0].tolist()
            with torch.no_grad():
                logits = model(ids).logits[0, :-1]
            logprobs = logits.log_softmax(-1)
            own = logprobs[torch.arange(len(logits)), ids[0, 1:]]
            assert found.logprobs.tolist() == pytest.approx(own.tolist(), abs=1e-3)
            top = logprobs.topk(3)
            for got, want in zip(found.top_logprobs, top.values.tolist(), strict=True):
                assert got.tolist() == pytest.approx(want, abs=1e-3)
            ranks = 1 + (logprobs > own[:, None] + 2e-3).sum(1)
            most = 1 + (logprobs > own[:, None] - 2e-3).sum(1)
            assert (ranks.numpy() <= found.ranks).all()
            assert (found.ranks <= most.numpy()).all()
        context, following = TEXTS[0][:40], TEXTS[0][40:]
        score = engine.score(context, following)
        count = len(score.token_ids)
        assert score.logprob == pytest.approx(
            float(scores(engine, batched=False)[0].logprobs[-count:].sum()), abs=1e-4
        )
        greedy = engine.generate([context], optc.SamplingParams(temperature=0, max_tokens=6))[0]
        assert engine.score(tokenizer(context).input_ids, list(greedy.token_ids)).is_greedy
