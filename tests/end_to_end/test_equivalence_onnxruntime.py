"""The runtime's combinations on the ONNX Runtime backend; published in docs/equivalence.md.

Its logits depend in their last bits on the shape of a call, so that tokens are those of plain
decoding up to near ties: a first difference is allowed only where the token drawn instead lies
within `TOLERANCE` of the one that plain decoding drew. OPTC_WRITE_DOCS=1 writes the page's section.
"""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import numpy as np
import pytest

import optc
from optc import registry
from optc.artifact.artifact import Artifact
from optc.proof.reference.teacher_forcing import SingleSequence
from optc.runtime.sampling.noise import gumbel, words
from tests.end_to_end.test_equivalence import (
    DRAFTED,
    GRAMMARS,
    MODELS,
    PAGE,
    PROMPTS,
    SMALL_BUDGET,
    Combination,
    Outcome,
    requests,
    run,
)
from tests.support.cost.rounded import rounded
from tests.support.shared import made_once

#: What drafts linearly; Medusa heads, trees and engines on shared weights are TVM's.
SPECULATION = ("off", "ngram", "lookahead", "draft")
#: Steps of one row, and of several: what other drafts are made by makes no other steps.
SHORT = ("off", "draft")
#: Difference of two logits, divided by the temperature where one is drawn, up to which
#: the engine may prefer either. Logits of this model span about 30.
TOLERANCE = 0.1
TITLE = "## ONNX Runtime"
SECTION = f"""\
{TITLE}

Written by `OPTC_WRITE_DOCS=1 pytest tests/end_to_end/test_equivalence_onnxruntime.py`. CI checks
that the first difference of a request from plain decoding, if there is one, is a near tie: that
there the logit of the token drawn instead lies within {TOLERANCE} of that of the one drawn before
(divided by the temperature, with the request's noise). The engine says `batch_invariant: false`,
because the last bits of sums depend on the shape of a call. Cells count the tokens up to the first
difference of each request, and all tokens; int8-fused without calibration on the CPU provider, KV
float32, no shared prefixes; on another machine they may differ.
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def compile(folder: Path) -> Path:
        return optc.compile(
            MODELS / "pycode",
            rounded("int8-fused", folder),
            folder / "artifact",
            backend="onnxruntime",
            draft=MODELS / "pycode-draft",
            no_gates=True,
        ).path

    return made_once(tmp_path_factory, "pycode-onnxruntime", compile)


def outcomes(artifact: Path, speculate: str) -> dict[Combination, Outcome]:
    """All combinations of one way to draft."""
    found = {}
    for chunked in (False, True):
        with optc.load(
            artifact,
            speculate=speculate,
            token_budget=SMALL_BUDGET if chunked else None,
            num_speculative_tokens=DRAFTED if speculate != "off" else None,
            verify="size",
        ) as engine:
            assert not engine.spec.batch_invariant
            for batched, grammar in itertools.product((False, True), GRAMMARS):
                key = Combination(speculate, "float32", chunked, False, batched, grammar)
                found[key] = run(engine, key)
    return found


def test_prompts_are_scored_in_calls_of_any_shape(artifact: Path) -> None:
    """Alone, in chunks and beside others: every token within `TOLERANCE`."""
    params = optc.SamplingParams(max_tokens=2, temperature=0, prompt_logprobs=0)
    expected: dict[str, list[float]] = {}
    for budget in (None, SMALL_BUDGET):
        with optc.load(artifact, token_budget=budget, verify="size") as engine:
            alone = [engine.generate([prompt], params)[0] for prompt in PROMPTS]
            for output in (*alone, *engine.generate(PROMPTS, params)):
                found = output.prompt_logprobs
                assert found is not None
                each = found.logprobs.tolist()
                want = expected.setdefault(str(found.token_ids.tolist()), each)
                assert each == pytest.approx(want, abs=TOLERANCE)
    assert len(expected) == len(PROMPTS)


class Reference:
    """Scores of tokens behind a text, one sequence computed at once."""

    def __init__(self, artifact: Path) -> None:
        opened = Artifact.open(artifact, "size")
        entry = opened.engine()
        self.engine = registry.backend(entry.backend).load(
            opened.engine_folder(entry), entry.spec, entry.data, 1
        )
        self.sequence = SingleSequence(self.engine, 256)

    def lead(
        self, text: list[int], at: int, seed: int, temperature: float, pair: list[int]
    ) -> float:
        """By how much the first of ``pair`` leads the second as output number ``at``."""
        self.sequence.restart()
        tokens = np.array(text, np.int32)
        logits = self.sequence.feed(tokens, np.array([len(text) - 1], np.int32))[0]
        scores = logits[pair].astype(np.float64)
        if temperature:
            scores = scores / temperature + gumbel(words(seed, 0, at, logits.size))[pair]
        return float(scores[0] - scores[1])


def first_difference(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Tokens that are equal from the start."""
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return sum(1 for _ in equal)


@pytest.mark.parametrize(
    "ways", [SHORT, pytest.param(SPECULATION, marks=pytest.mark.long)], ids=["in-part", "all"]
)
def test_first_differences_are_near_ties(artifact: Path, ways: tuple[str, ...]) -> None:
    found: dict[Combination, Outcome] = {}
    for speculate in ways:
        found |= outcomes(artifact, speculate)
    reference = Reference(artifact)
    with optc.load(artifact, verify="size") as engine:
        prompts = [engine.tokenizer.encode(p) for p in PROMPTS]  # type: ignore[union-attr]
    gaps: list[float] = []
    for key, outcome in found.items():
        plain = found[Combination("off", "float32", False, False, False, key.grammar)]
        assert (outcome.drafted > 0) == (key.speculate != "off"), key
        for number, (name, _, params) in enumerate(requests(key.grammar)):
            want, got = plain.tokens[name], outcome.tokens[name]
            at = first_difference(want, got)
            if at == min(len(want), len(got)):
                assert len(want) == len(got), (key, name)
                continue
            text = [*prompts[number // 2], *want[:at]]
            pair = [want[at], got[at]]
            lead = reference.lead(text, at, params.seed or 0, params.temperature, pair)
            gaps.append(abs(lead) * (params.temperature or 1.0))
            assert gaps[-1] < TOLERANCE, (key, name, at, lead)
    if os.environ.get("OPTC_WRITE_DOCS") and ways == SPECULATION:
        before = PAGE.read_text().split(f"\n{TITLE}")[0]
        PAGE.write_text(f"{before}\n{section(found, gaps, ways)}")
    assert labels(PAGE.read_text()) >= labels(section(found, gaps, ways)), (
        "run this with OPTC_WRITE_DOCS=1"
    )


def test_the_rule_can_fail(artifact: Path) -> None:
    """Tokens of another text are not within the tolerance."""
    reference = Reference(artifact)
    text = list(range(5, 25))
    logits = reference.sequence
    logits.restart()
    scores = logits.feed(np.array(text, np.int32), np.array([19], np.int32))[0]
    best, worst = int(scores.argmax()), int(scores.argmin())
    assert reference.lead(text, 0, 0, 0.0, [best, worst]) > 100 * TOLERANCE


def labels(page: str) -> set[str]:
    """What each row of the section is about, with the tolerance."""
    part = page.split(TITLE)[-1]
    return {
        *re.findall(r"^\| \w+ \| \w+ \|", part, re.MULTILINE),
        *re.findall(r"lies within \S+", part),
        *re.findall(r"near ties were met", part),
    }


def near_ties(gaps: list[float], requests: int) -> str:
    """What the first differences were: how many, and how far from a tie, in units of logits."""
    if not gaps:
        return f"In {requests} requests no near ties were met.\n"
    return (
        f"In {requests} requests {len(gaps)} near ties were met. "
        f"Their gaps: at most {max(gaps):.3f}, median {np.median(gaps):.3f}, of a tolerance of\n"
        f"{TOLERANCE}.\n"
    )


def section(found: dict[Combination, Outcome], gaps: list[float], kinds: tuple[str, ...]) -> str:
    """The page's section: tokens before the first difference, by combination, and the near ties
    that the differences were."""
    ways = list(itertools.product((False, True), repeat=2))
    titles = [f"{'chunked' if c else 'whole'}, {'batched' if b else 'alone'}" for c, b in ways]
    lines = [
        SECTION,
        near_ties(gaps, sum(len(outcome.tokens) for outcome in found.values())),
        "| speculation | grammar | " + " | ".join(titles) + " |",
        "|---" * (2 + len(ways)) + "|",
    ]
    for speculate, grammar in itertools.product(kinds, GRAMMARS):
        plain = found[Combination("off", "float32", False, False, False, grammar)].tokens
        cells = []
        for chunked, batched in ways:
            key = Combination(speculate, "float32", chunked, False, batched, grammar)
            tokens = found[key].tokens
            equal = sum(first_difference(plain[n], tokens[n]) for n in plain)
            cells.append(f"{equal}/{sum(map(len, plain.values()))}")
        lines.append(f"| {speculate} | {grammar} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
