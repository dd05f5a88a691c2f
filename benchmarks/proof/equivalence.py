"""Tokens in every combination of what the runtime does, for experts, sinks and ALiBi.

    python -m benchmarks.proof.equivalence [--model NAME]… [--kv TYPE]… [--write]

Tiny random models of those types are compiled and run in every combination of {whole, chunked}
prompts x prefix {miss, hit} x {alone, batched} x ways to draft x types of KV, greedy and seeded.
Each cell counts the tokens that equal those of plain decoding, one request at a time. One that is
not equal is an error: the exit code is 1. ``--write`` writes the section of docs/equivalence.md.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from transformers import PretrainedConfig

import optc
from benchmarks.families.models import build, save
from benchmarks.families.tiny import VOCABULARY, tiny_config

PAGE = Path(__file__).parents[2] / "docs" / "equivalence.md"
TITLE = "## Experts, sinks and ALiBi"
#: The next section of the page.
_NEXT = "\n## ONNX Runtime"
#: Type of transformers and recipe, by name.
MODELS = {
    "qwen3_moe, int8": ("qwen3_moe", "int8-fused"),
    "qwen3_moe, int4": ("qwen3_moe", "int4-fast"),
    "gpt_oss, int8": ("gpt_oss", "int8-fused"),
    "mpt, int8": ("mpt", "int8-fused"),
}
#: Heads of 32 channels, which KV in int4 takes.
HEADS = {
    "qwen3_moe": {"head_dim": 32},
    "gpt_oss": {"head_dim": 32},
    "mpt": {"n_heads": 2},
}
KV_TYPES = ("float32", "int8", "int4")
SPECULATION = ("off", "ngram", "lookahead", "self")
_EITHER = (False, True)
#: Chunked, prefix hit, batched.
Way = tuple[bool, bool, bool]
WAYS: tuple[Way, ...] = tuple(itertools.product(_EITHER, _EITHER, _EITHER))
TOKENS = 16
#: Rows of a step that split every prompt; without it a prompt is one chunk.
SMALL_BUDGET = 8
#: Drafted whether it pays or not: the models are too small for drafts to pay.
DRAFTED = 4

_RANDOM = np.random.default_rng(11)
#: Repetitive, so that something is drafted; the first is a prefix of the second.
PROMPTS = [(_RANDOM.integers(4, VOCABULARY, 9).tolist() * 4)[:length] for length in (20, 33)]
STRANGERS = _RANDOM.integers(4, VOCABULARY, (2, 7)).tolist()


class Outcome(NamedTuple):
    """The result of a combination: tokens by request, and what shows that it did what it says."""

    tokens: list[tuple[int, ...]]
    cached: int
    drafted: int


def config_of(kind: str) -> PretrainedConfig:
    """The tiny configuration of a type of `HEADS`."""
    config = tiny_config(kind)
    for name, value in HEADS[kind].items():
        setattr(config, name, value)
    return config


Table = dict[tuple[str, str, str], list[Outcome]]


def compiled(config: PretrainedConfig, recipe: str, kv: str, folder: Path) -> Path:
    """The artifact of a tiny random model, whose first layer drafts, too."""
    model = folder / "model"
    save(build(config), model)
    options = [f"kv-cache.dtype={kv}", "kv-cache.tree=true"]
    output = folder / "artifact"
    return optc.compile(model, recipe, output, set=options, self_draft=1, no_gates=True).path


def outcomes(artifact: Path, speculate: str, ways: Sequence[Way] = WAYS) -> list[Outcome]:
    """The outcome of each of the ways."""
    found = []
    for chunked, hit, batched in ways:
        with optc.load(
            artifact,
            speculate=speculate,
            token_budget=SMALL_BUDGET if chunked else None,
            prefix_cache=hit,
            block_size=16,
            num_speculative_tokens=None if speculate == "off" else DRAFTED,
            verify="size",
            kv_memory="4MiB",
        ) as engine:
            if hit:
                engine.generate(PROMPTS, optc.SamplingParams(max_tokens=1))
            found.append(_run(engine, batched=batched))
    return found


def _requests() -> Iterator[tuple[list[int], optc.SamplingParams]]:
    for (number, prompt), temperature in itertools.product(enumerate(PROMPTS), (0.0, 0.9)):
        yield (
            prompt,
            optc.SamplingParams(
                max_tokens=TOKENS, temperature=temperature, seed=number, ignore_eos=True
            ),
        )


def _run(engine: optc.Engine, *, batched: bool) -> Outcome:
    if batched:
        others = [engine.submit(p, optc.SamplingParams(max_tokens=TOKENS)) for p in STRANGERS]
        handles = [engine.submit(*one) for one in _requests()]
        outputs = [handle.result() for handle in [*handles, *others]][: len(handles)]
    else:
        outputs = [engine.submit(*one).result() for one in _requests()]
    return Outcome(
        [output.token_ids for output in outputs],
        sum(output.metrics.cached_tokens for output in outputs),
        sum(output.metrics.drafted_tokens for output in outputs),
    )


def equal(outcome: Outcome, plain: Outcome) -> int:
    """The number of tokens that equal those of plain decoding."""
    pairs = zip(outcome.tokens, plain.tokens, strict=True)
    return sum(a == b for one, other in pairs for a, b in zip(one, other, strict=False))


def faults(table: Table) -> list[str]:
    """Cells whose tokens are others, and combinations that did not happen."""
    found = []
    for (model, kv, speculate), cells in table.items():
        plain = table[model, kv, "off"][0]
        for way, cell in zip(WAYS, cells, strict=True):
            where = f"{model}, KV {kv}, {speculate}, {_title(way)}"
            if cell.tokens != plain.tokens:
                found.append(f"{where}: other tokens than plain decoding")
            if (cell.cached > 0) != way[1]:
                found.append(f"{where}: {cell.cached} tokens came from the prefix cache")
            if (cell.drafted > 0) != (speculate != "off"):
                found.append(f"{where}: {cell.drafted} tokens were drafted")
    return found


def section(table: Table) -> str:
    """The page's section."""
    requests = len(list(_requests()))
    lines = [
        TITLE,
        "",
        "Written by `python -m benchmarks.proof.equivalence --write`.",
        "Tiny random models of transformers' types `qwen3_moe` (experts), `gpt_oss` (experts,",
        "sinks, sliding windows) and `mpt` (ALiBi), their weights in the bits stated. Each cell",
        f"is a run of {requests} requests (two prompts, greedy and seeded at temperature 0.9),",
        "counted as above.",
        "",
        "| model | KV | speculation | " + " | ".join(map(_title, WAYS)) + " |",
        "|---" * (3 + len(WAYS)) + "|",
    ]
    for (model, kv, speculate), cells in table.items():
        plain = table[model, kv, "off"][0]
        total = sum(map(len, plain.tokens))
        counts = [f"{equal(cell, plain)}/{total}" for cell in cells]
        lines.append(f"| {model} | {kv} | {speculate} | " + " | ".join(counts) + " |")
    return "\n".join(lines) + "\n"


def _title(way: Way) -> str:
    chunked, hit, batched = way
    return (
        f"{'chunked' if chunked else 'whole'}, {'hit' if hit else 'miss'}, "
        f"{'batched' if batched else 'alone'}"
    )


def write(text: str) -> None:
    """Put the section into the page, before that of ONNX Runtime."""
    head, _, tail = PAGE.read_text().partition(_NEXT)
    before = head.partition(f"\n{TITLE}")[0]
    PAGE.write_text(f"{before}\n{text}{_NEXT}{tail}")


def main() -> None:
    """Run the combinations and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", action="append", choices=MODELS, help="alone; may be repeated")
    parser.add_argument("--kv", action="append", choices=KV_TYPES, help="alone; may be repeated")
    parser.add_argument("--write", action="store_true", help="write docs/equivalence.md")
    options = parser.parse_args()
    table: Table = {}
    for name, kv in itertools.product(options.model or MODELS, options.kv or KV_TYPES):
        kind, recipe = MODELS[name]
        with tempfile.TemporaryDirectory() as folder:
            artifact = compiled(config_of(kind), recipe, kv, Path(folder))
            for speculate in SPECULATION:
                table[name, kv, speculate] = outcomes(artifact, speculate)
        print(f"{name}, {kv}: done", file=sys.stderr, flush=True)
    print(section(table))
    found = faults(table)
    if options.write and not found:
        write(section(table))
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
