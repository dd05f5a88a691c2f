"""Tokens a target pass with each way to draft, on held-out code.

    python -m benchmarks.proof.tokens_per_pass ARTIFACT [--kinds ngram,lookahead] [--drafts 6]
        [--temperatures 0,0.7] [--json FILE]

24 prompts of 127 tokens of held-out code, 128 new tokens each, one after the other, always
``--drafts`` drafts a step; greedy and at temperature 0.7. A pass is a step after the prefill, and
the text of every kind is checked to be that of plain decoding. Seconds are of the whole run and
mean something on an idle machine only.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import optc

PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 24, 127, 128
TEXT = Path(__file__).parents[2] / "examples/text/code_heldout.jsonl"
SEED = 5


def prompts_of(engine: optc.Engine) -> list[list[int]]:
    """Windows of the held-out modules, in turn."""
    if engine.tokenizer is None:
        raise SystemExit("the artifact has no tokenizer")
    texts = [json.loads(line)["text"] for line in TEXT.read_text().splitlines()]
    encoded = [engine.tokenizer.encode(text) for text in texts]
    long = [ids for ids in encoded if len(ids) > 600]
    prompts = []
    for index in range(PROMPTS):
        ids = long[index % len(long)]
        start = 137 * index % (len(ids) - 300)
        prompts.append([int(token) for token in ids[start : start + PROMPT_TOKENS]])
    return prompts


def run(artifact: Path, kind: str, drafts: int, temperature: float) -> dict[str, Any]:
    """All prompts with one way to draft."""
    count = None if kind == "off" else drafts
    with optc.load(
        artifact,
        prefix_cache=False,
        speculate=kind,
        num_speculative_tokens=count,
        verify="size",
    ) as engine:
        texts, passes = [], 0
        began = time.perf_counter()
        for seed, prompt in enumerate(prompts_of(engine), SEED):
            params = optc.SamplingParams(
                max_tokens=NEW_TOKENS, temperature=temperature, seed=seed, ignore_eos=True
            )
            before = engine.metrics().steps
            texts.append(engine.generate([prompt], params)[0].token_ids)
            passes += engine.metrics().steps - before - 1
        seconds = time.perf_counter() - began
        metrics = engine.metrics()
    tokens = sum(len(text) - 1 for text in texts)
    return {
        "kind": kind,
        "temperature": temperature,
        "drafts": count or 0,
        "tokens_per_pass": tokens / passes,
        "drafted": metrics.drafted_tokens,
        "accepted": metrics.accepted_tokens,
        "seconds": seconds,
        "texts": texts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--kinds", default="ngram,lookahead")
    parser.add_argument("--drafts", type=int, default=6)
    parser.add_argument("--temperatures", default="0,0.7")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    for temperature in map(float, arguments.temperatures.split(",")):
        plain: list[Any] | None = None
        for kind in ("off", *arguments.kinds.split(",")):
            result = run(arguments.artifact, kind, arguments.drafts, temperature)
            texts = result.pop("texts")
            if plain is not None and texts != plain:
                raise SystemExit(f"{kind}: the text is not that of plain decoding")
            plain = plain or texts
            results.append(result)
            print(
                f"{kind:10} temperature {temperature}: {result['tokens_per_pass']:.2f} tokens a "
                f"pass, {result['accepted']} of {result['drafted']} drafts accepted, "
                f"{result['seconds']:.2f} s",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
