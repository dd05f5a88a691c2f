"""The cost of structured output: masks by size of vocabulary, and their share of a step.

    python -m benchmarks.micro.structured [--tokenizer FILE]... [--artifact DIR] [--json FILE]

For each tokenizer, texts of a JSON schema are drawn at random (every allowed token alike), which
visits more of the grammar than a model does; once with strings of any length, once with
``maxLength``, near which every token must be looked at. ``--artifact`` samples 32 records from a
model, with the schema and, as many tokens, without. `benchmarks.inputs.build_tokenizer` makes
tokenizers of any size.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar
from unittest.mock import patch

import llguidance
import numpy as np
import tokenizers

import optc
from optc.runtime.loop import core
from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sampler import Mask, Sampled, unpacked
from optc.runtime.step.masks import fill_masks
from optc.runtime.structured.compiler import GrammarCompiler
from optc.runtime.structured.constraint import Constraint
from optc.runtime.structured.structure import Structure
from optc.runtime.text.tokenizer import Tokenizer, read_tokenizer


def schema_of(**text: int) -> dict[str, Any]:
    """A record whose strings are limited by ``text``."""
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", **text},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"type": "string", **text}, "maxItems": 4},
            "kind": {"enum": ["alpha", "beta", "gamma_ray"]},
            "active": {"type": "boolean"},
        },
        "required": ["name", "age", "tags", "kind", "active"],
        "additionalProperties": False,
    }


BOUNDED = schema_of(maxLength=20)
SCHEMAS = {"any length": schema_of(), "maxLength": BOUNDED}
#: Random texts of unlimited strings rarely end.
MOST_TOKENS = 100
WALKS = 40
REQUESTS = 32
Result = TypeVar("Result")


class Stopwatch:
    """Times of the calls of one function, in microseconds."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def wrap(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """The same function, timed."""

        def timed(*args: Any, **options: Any) -> Result:
            started = time.perf_counter()
            result = function(*args, **options)
            self.times.append((time.perf_counter() - started) * 1e6)
            return result

        return timed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.micro.structured", description=__doc__)
    parser.add_argument("--tokenizer", type=Path, action="append", default=[])
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    backends = [read_tokenizer(path) for path in args.tokenizer]
    result: dict[str, Any] = {
        "masks": [masks(backend, strings) for backend in backends for strings in SCHEMAS]
    }
    for row in result["masks"]:
        print(json.dumps(row))
    if args.artifact:
        result["engine"] = engine(args.artifact)
        print(json.dumps(result["engine"]))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


def masks(backend: tokenizers.Tokenizer, strings: str) -> dict[str, Any]:
    """Times of all that a tokenizer's size has a say in."""
    vocab = backend.get_vocab_size(with_added_tokens=True)
    structure = SamplingParams(json_schema=SCHEMAS[strings]).structure
    assert structure is not None
    compiler = GrammarCompiler(Tokenizer(backend), vocab, [1])
    tokenizer, compiling = Stopwatch(), Stopwatch()
    tokenizer.wrap(compiler._tokenizer)()
    constraints = compiling.wrap(compiler.constraints)(structure, WALKS)
    fill, follow = Stopwatch(), Stopwatch()
    random = np.random.default_rng(0)
    for constraint in constraints:
        walk(constraint, vocab, random, fill, follow)
    return {
        "vocabulary": vocab,
        "strings": strings,
        "tokenizer_ms": round(tokenizer.times[0] / 1e3, 1),
        "compile_ms": round(compiling.times[0] / 1e3, 2),
        "masks": len(fill.times),
        "mask_us": spread(fill.times),
        "follow_us": spread(follow.times),
        "eight_rows_us": eight_rows(compiler, structure, vocab),
    }


def walk(
    constraint: Constraint,
    vocab: int,
    random: np.random.Generator,
    fill: Stopwatch,
    follow: Stopwatch,
) -> None:
    """Draw one text of the grammar."""
    row = np.zeros((1, constraint.mask_words), np.uint32)
    fill_row, take = fill.wrap(constraint.fill), follow.wrap(constraint.follow)
    for _ in range(MOST_TOKENS):
        fill_row(row, [], None)
        token = int(random.choice(np.flatnonzero(unpacked(row[0], vocab))))
        take([Sampled(token, None)], SamplingParams())
        if constraint.ended:
            return


def eight_rows(compiler: GrammarCompiler, structure: Structure, vocab: int) -> dict[str, float]:
    """Mean time of the masks of eight requests in a loop, and in llguidance's thread pool."""
    executor, loop, pool = llguidance.LLExecutor(), Stopwatch(), Stopwatch()
    random = np.random.default_rng(1)
    rows = np.zeros((8, -(-vocab // 32)), np.uint32)
    compute = pool.wrap(executor.unsafe_compute_mask_ptr)
    for first in [(loop, pool), (pool, loop)] * (WALKS // 8):
        # A state's second mask is cheap: each way has matchers of its own, in the same states.
        of = dict(zip(first, halves(compiler.constraints(structure, 16)), strict=True))
        for _ in range(12):
            for watch in first:
                if watch is loop:
                    watch.wrap(fill_all)(of[loop], rows)
                else:
                    of_pool = [(each._matcher, row) for row, each in enumerate(of[pool])]
                    compute(of_pool, rows.ctypes.data, rows.strides[0], len(rows))
            for *pair, row in zip(of[loop], of[pool], rows, strict=True):
                token = int(random.choice(np.flatnonzero(unpacked(row, vocab))))
                for each in pair:
                    each.follow([Sampled(token, None)], SamplingParams())
            if any(each.ended for each in of[loop]):
                break
    return {"loop": round(mean(loop.times), 1), "pool": round(mean(pool.times), 1)}


def fill_all(constraints: Sequence[Constraint], rows: Mask) -> None:
    """Masks one after the other."""
    for constraint, row in zip(constraints, rows, strict=True):
        constraint.fill(row[None], [], None)


def halves(constraints: Sequence[Constraint]) -> list[Sequence[Constraint]]:
    """Two lists of the same length."""
    middle = len(constraints) // 2
    return [constraints[:middle], constraints[middle:]]


def spread(times: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles."""
    p50, p99 = np.percentile(times, [50, 99])
    return {"mean": round(mean(times), 1), "p50": round(p50, 1), "p99": round(p99, 1)}


def engine(artifact: Path) -> dict[str, Any]:
    """Records from a model with and without the schema."""
    fill, follow = Stopwatch(), Stopwatch()
    with (
        patch.object(core, "fill_masks", fill.wrap(fill_masks)),
        patch.object(Constraint, "follow", follow.wrap(Constraint.follow)),
        optc.load(artifact, verify="size") as model,
    ):
        prompts = ["# A person as JSON\nperson = "] * REQUESTS
        structured = [
            SamplingParams(max_tokens=300, seed=seed, json_schema=BOUNDED)
            for seed in range(REQUESTS)
        ]
        free = [
            SamplingParams(max_tokens=output.output_tokens, seed=seed, ignore_eos=True)
            for seed, output in enumerate(model.generate(prompts, structured))
        ]
        model.generate(prompts, free)
        fill.times.clear()
        follow.times.clear()
        with_schema = run(model, prompts, structured)
        spent = sum(fill.times) + sum(follow.times)
        with_schema["structure_share"] = round(spent / 1e6 / with_schema["seconds"], 4)
        return {"schema": with_schema, "free": run(model, prompts, free)}


def run(
    model: optc.Engine, prompts: list[str], params: list[SamplingParams]
) -> dict[str, float | int]:
    """Tokens, steps and time of one batch of requests."""
    before = model.metrics()
    started = time.perf_counter()
    outputs = model.generate(prompts, params)
    seconds = time.perf_counter() - started
    after = model.metrics()
    tokens = sum(output.output_tokens for output in outputs)
    return {
        "seconds": round(seconds, 4),
        "output_tokens": tokens,
        "forced_tokens": sum(output.metrics.forced_tokens for output in outputs),
        "tokens_per_s": round(tokens / seconds, 1),
        "steps": after.steps - before.steps,
        "step_ms": round((after.step_s - before.step_s) / (after.steps - before.steps) * 1e3, 3),
    }


if __name__ == "__main__":
    main()
