"""The same tokens in every combination of what the runtime does; published in docs/equivalence.md.

Greedy and seeded output of the trained example, for {chunked, not} x {prefix hit, miss} x {alone,
batched} x every way to draft x every type of KV x {grammar, none}, against plain decoding of one
request at a time. OPTC_WRITE_DOCS=1 writes the page; otherwise it must be up to date.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import optc
from optc.runtime.speculative.kinds import KINDS

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "examples" / "models"
PAGE = ROOT / "docs" / "equivalence.md"
#: Types of the KV pools, each compiled once.
KV_TYPES = ("float32", "int8", "int4")
SPECULATION = ("off", *KINDS)
#: Other types of KV take other kernels, of which tests of kernels and engines say the same.
LONG = pytest.mark.long
#: Ways to draft that are compiled for some types of pools only.
ONLY = {"eagle": ("int8",)}
GRAMMARS = {"any": None, "regex": r"[a-z_]{1,12}\([a-z, ]{0,24}\):\n(    [ -~]{0,30}\n){1,3}"}
PROMPTS = (
    "def add(first, second):\n    return first + second\n\n\ndef sub(first, second):\n    ",
    "import os\nimport sys\n\n\nclass Reader:\n    def __init__(self, path):\n        self.",
    "for name in sorted(names):\n    if name not in seen:\n        seen.add(name)\n\n\ndef ",
)
STRANGERS = ("x = [", "try:\n    import json\nexcept", "    return self._value\n\n    @property\n")
#: Rows of a step that split every prompt; without it a prompt is one chunk.
SMALL_BUDGET = 12
TOKENS = 20
#: Drafted whether it pays or not: the example is too small for drafts to pay.
DRAFTED = 4


HEADER = """\
# Equivalence

Written by `OPTC_WRITE_DOCS=1 pytest tests/end_to_end/test_equivalence.py`, which also checks every
cell: half of those of int8 KV in `make test`, all in `make test-long`.
Each cell is a run of six requests (three prompts of the trained example, greedy and seeded at
temperature 0.9) and counts the tokens that equal those of plain decoding, one request at a time,
and all tokens. Prompts are computed whole or in chunks, with a prefix-cache hit or a miss, alone
or batched with each other and with strangers; four tokens are drafted wherever something drafts.
""".splitlines()


#: How an engine is loaded: prompts in chunks, prefixes shared.
Loads = tuple[tuple[bool, bool], ...]
ALL: Loads = tuple(itertools.product((False, True), repeat=2))
#: Those that show each value, with plain decoding among them.
BOTH_OR_NEITHER: Loads = ((False, False), (True, True))


class Combination(NamedTuple):
    """One way to run the requests."""

    speculate: str
    kv: str
    chunked: bool
    prefix_hit: bool
    batched: bool
    grammar: str


#: By request.
Tokens = dict[str, tuple[int, ...]]


class Outcome(NamedTuple):
    """The result of a combination: tokens by request, and what shows that it did what it says."""

    tokens: Tokens
    cached: int
    drafted: int


def ways_to_draft() -> list[tuple[str, str]]:
    """Each with each type of pools that it is compiled for."""
    pairs = itertools.product(SPECULATION, KV_TYPES)
    return [(kind, kv) for kind, kv in pairs if kv in ONLY.get(kind, KV_TYPES)]


def requests(grammar: str) -> Iterator[tuple[str, str, optc.SamplingParams]]:
    for number, prompt in enumerate(PROMPTS):
        for temperature in (0.0, 0.9):
            params = optc.SamplingParams(
                max_tokens=TOKENS, temperature=temperature, seed=number, regex=GRAMMARS[grammar]
            )
            yield f"{number} at {temperature}", prompt, params


def run(engine: optc.Engine, combination: Combination) -> Outcome:
    wanted = list(requests(combination.grammar))
    if combination.batched:
        others = [engine.submit(p, optc.SamplingParams(max_tokens=TOKENS)) for p in STRANGERS]
        handles = [engine.submit(prompt, params) for _, prompt, params in wanted]
        outputs = [handle.result() for handle in handles]
        for other in others:
            other.result()
    else:
        outputs = [engine.submit(prompt, params).result() for _, prompt, params in wanted]
    return Outcome(
        {name: o.token_ids for (name, _, _), o in zip(wanted, outputs, strict=True)},
        sum(o.metrics.cached_tokens for o in outputs),
        sum(o.metrics.drafted_tokens for o in outputs),
    )


def outcomes(artifact: Path, kv: str, speculate: str, loads: Loads) -> dict[Combination, Outcome]:
    """Combinations of one way to draft and one type of KV, with engines that are loaded so."""
    found = {}
    for chunked, prefix_hit in loads:
        with optc.load(
            artifact,
            speculate=speculate,
            token_budget=SMALL_BUDGET if chunked else None,
            prefix_cache=prefix_hit,
            block_size=16,
            num_speculative_tokens=DRAFTED if speculate != "off" else None,
            verify="size",
        ) as engine:
            if prefix_hit:
                engine.generate(PROMPTS, optc.SamplingParams(max_tokens=1))
            for batched, grammar in itertools.product((False, True), GRAMMARS):
                key = Combination(speculate, kv, chunked, prefix_hit, batched, grammar)
                found[key] = run(engine, key)
    return found


def check(key: Combination, outcome: Outcome, plain: Outcome) -> None:
    """The tokens are those of plain decoding, and the combination did happen."""
    assert outcome.tokens == plain.tokens, key
    assert (outcome.cached > 0) == key.prefix_hit, key
    if key.speculate != "off":
        assert outcome.drafted > 0, key


@pytest.mark.parametrize(
    ("kv", "loads"),
    [("int8", BOTH_OR_NEITHER), *(pytest.param(kv, ALL, marks=LONG) for kv in KV_TYPES)],
    ids=["int8-in-part", *KV_TYPES],
)
def test_every_combination_gives_the_tokens_of_plain_decoding(
    kv: str, loads: Loads, drafting_artifact: Callable[[str], Path]
) -> None:
    found: dict[Combination, Outcome] = {}
    for speculate in (way for way, its_kv in ways_to_draft() if its_kv == kv):
        found |= outcomes(drafting_artifact(kv), kv, speculate, loads)
    for key, outcome in found.items():
        check(key, outcome, found[Combination("off", kv, False, False, False, key.grammar)])
    assert all(len(set(o.tokens.values())) > 1 for o in found.values())
    mine, *others = PAGE.read_text().split("\n## ")  # the other sections are other backends'
    known = rows_of(mine)
    text = page(known | rows(found, kv, known))
    if os.environ.get("OPTC_WRITE_DOCS"):
        PAGE.write_text("\n## ".join([text, *others]))
        return
    assert mine == text, "run this test with OPTC_WRITE_DOCS=1"


#: A row's line by its first cells: how it drafts, type of KV, grammar.
Rows = dict[tuple[str, ...], str]
WAYS = list(itertools.product((False, True), repeat=3))


def rows_of(text: str) -> Rows:
    """Those of a page, its titles among them."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return {tuple(line.split(" | ")[:3]): line for line in lines}


def rows(found: dict[Combination, Outcome], kv: str, known: Rows) -> Rows:
    """Tokens equal to those of plain decoding, by combination with one type of KV; what was not run
    is as it is ``known``."""
    made = {}
    for speculate, grammar in itertools.product(
        dict.fromkeys(k.speculate for k in found), GRAMMARS
    ):
        plain = found[Combination("off", kv, False, False, False, grammar)].tokens
        first = (f"| {speculate}", kv, grammar)
        cells = known.get(first, "").removesuffix(" |").split(" | ")[3:] or [""] * len(WAYS)
        for at, (chunked, hit, batched) in enumerate(WAYS):
            key = Combination(speculate, kv, chunked, hit, batched, grammar)
            if key in found:
                cells[at] = cell(plain, found[key].tokens)
        made[first] = " | ".join([*first, *cells]) + " |"
    return made


def cell(plain: Tokens, tokens: Tokens) -> str:
    """How many are equal, and all."""
    equal = sum(a == b for n in plain for a, b in zip(plain[n], tokens[n], strict=False))
    return f"{equal}/{sum(map(len, plain.values()))}"


def page(known: Rows) -> str:
    """docs/equivalence.md: the rows that are known, in the order of the constants above."""
    titles = [
        f"{'chunked' if c else 'whole'}, {'hit' if h else 'miss'}, {'batched' if b else 'alone'}"
        for c, h, b in WAYS
    ]
    keys = [
        (f"| {speculate}", kv, grammar)
        for (speculate, kv), grammar in itertools.product(ways_to_draft(), GRAMMARS)
    ]
    lines = [
        *HEADER,
        "",
        "| speculation | KV | grammar | " + " | ".join(titles) + " |",
        "|---" * (3 + len(WAYS)) + "|",
        *(known[key] for key in keys if key in known),
    ]
    return "\n".join(lines) + "\n"
