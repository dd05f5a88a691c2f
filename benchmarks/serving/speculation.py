"""Decode speed with and without speculation, same requests, same tokens, one process.

    python -m benchmarks.serving.speculation ARTIFACT --speculate ngram --text edits
    python -m benchmarks.serving.speculation ARTIFACT --speculate draft,eagle --text edits,code
    python -m benchmarks.serving.speculation ARTIFACT --speculate draft --text code
        --batch 16 --rounds 8

Prints one JSON object for each text and way to draft; ``--append`` adds them to a JSON file. One
engine without drafts and one for each way take turns, batch by batch; what counts is the time after
all of a batch have their first token. All requests of a batch get as many tokens, so that it stays
full. On a machine that others use, single ratios say little: their median and quartiles do, over
many short turns (``--rounds``, each with prompts of its own: an engine that drafts remembers
texts).
``overhead_us``, where there is one way to draft, is measured directly: what an engine that may
draft spends in its speculator in a step without drafts, and ``overhead_share`` that time's share of
those steps. It resolves what ratios of noisy speeds cannot.
Quality of drafts needs a trained model, and what speculation is worth needs one that memory bounds:
`benchmarks.inputs.grow_model` makes both of the shipped example, `grow_eagle` its layer.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import optc
from optc.runtime.requests.request import Request
from optc.runtime.speculative.speculator import Speculator

#: Modules of the standard library that no training step saw.
TEXT = Path(__file__).parents[2] / "examples/text/code_heldout.jsonl"
TEXTS = ("edits", "code", "noise")
#: What engines begin with: code, since drafts for any tokens would teach one that none hold, and
#: of no corpus, since n-grams remember.
WARM = Path(__file__).read_text()[-400:]
#: The engine that drafts nothing.
PLAIN = "plain"


def documents(corpus: Path) -> list[str]:
    """Texts of a JSON-lines file."""
    return [json.loads(line)["text"] for line in corpus.read_text().splitlines()]


def edits(corpus: Path) -> list[str]:
    """A function, and the head of the same function under another name: what follows is mostly
    known."""
    found = []
    for text in documents(corpus):
        for match in re.finditer(r"(?ms)^def (\w+)\(.*?(?=^\S)", text):
            function = match[0].rstrip()
            if 300 < len(function) < 900:
                head = function.splitlines()[0].replace(match[1], f"{match[1]}_new", 1)
                found.append(f"{function}\n\n\n{head}\n")
    return found


def code(corpus: Path, shift: int = 0) -> list[str]:
    """Windows of 450 characters, those of another ``shift`` 450 characters further on."""
    starts = [start + 450 * shift for start in (0, 2000, 4000)]
    found = [text[start : start + 450] for text in documents(corpus) for start in starts]
    return [text for text in found if len(text) == 450]


def spread(items: Sequence[str], count: int) -> list[str]:
    """``count`` of them, evenly spaced."""
    return [items[i * len(items) // count] for i in range(count)]


def prompts(
    text: str, count: int, vocab_size: int, corpus: Path = TEXT, number: int = 0
) -> list[Any]:
    """Prompts of one kind of text for a round; ``noise`` is token ids drawn evenly."""
    if text == "noise":
        rng = np.random.default_rng(number)
        return [rng.integers(3, vocab_size, 100).tolist() for _ in range(count)]
    return spread(edits(corpus) if text == "edits" else code(corpus, number), count)


def decode(
    engine: optc.Engine, batch: list[Any], params: list[optc.SamplingParams]
) -> dict[str, Any]:
    """Continue one batch; tokens and seconds from when all have their first token."""
    before = engine.metrics()
    outputs = [output.raise_for_error() for output in engine.generate(batch, params)]
    times = [output.metrics.token_times_s for output in outputs]
    after = engine.metrics()
    start, end = max(t[0] for t in times), max(t[-1] for t in times)
    return {
        "ids": [output.token_ids for output in outputs],
        "tokens": sum(at > start for t in times for at in t),
        "seconds": end - start,
        "drafted": after.drafted_tokens - before.drafted_tokens,
        "accepted": after.accepted_tokens - before.accepted_tokens,
        "steps": after.steps - before.steps,
    }


@dataclass
class Overhead:
    """Time in the speculator, of steps that came to no drafts.

    Attributes:
        spent_s: Deciding, looking and taking note.
        steps_s: Of the steps as a whole.
        steps: How many there were.
    """

    spent_s: float = 0.0
    steps_s: float = 0.0
    steps: int = 0

    def clear(self) -> None:
        """Begin again."""
        self.spent_s, self.steps_s, self.steps = 0.0, 0.0, 0

    def to_json(self) -> dict[str, Any]:
        """For a result."""
        return {
            "plain_steps": self.steps,
            "overhead_us": round(1e6 * self.spent_s / max(1, self.steps), 1),
            "overhead_share": round(self.spent_s / max(1e-9, self.steps_s), 5),
        }

    def watch(self, stack: ExitStack) -> None:
        """Time all speculators of the process from now until ``stack`` ends."""
        propose, observe = Speculator.propose, Speculator.observe_step
        looked = 0.0

        def timed_propose(speculator: Speculator, running: Sequence[Request]) -> bool:
            nonlocal looked
            started = time.perf_counter()
            drafted = propose(speculator, running)
            looked = math.nan if drafted else time.perf_counter() - started
            return drafted

        def timed_observe(
            speculator: Speculator, sequences: int, rows: int, seconds: float, *, mixed: bool
        ) -> None:
            started = time.perf_counter()
            observe(speculator, sequences, rows, seconds, mixed=mixed)
            noted = time.perf_counter() - started
            if not mixed and not math.isnan(looked):
                self.spent_s += looked + noted
                self.steps_s += seconds + noted
                self.steps += 1

        stack.enter_context(patch.object(Speculator, "propose", timed_propose))
        stack.enter_context(patch.object(Speculator, "observe_step", timed_observe))


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All engines in turns over all batches of each text; a result for each that drafts."""
    options: dict[str, Any] = {"prefix_cache": False, "verify": "size"}
    drafting = {"draft": arguments.draft}
    if arguments.num_speculative_tokens:
        drafting["num_speculative_tokens"] = arguments.num_speculative_tokens
    with ExitStack() as stack:
        engines = {PLAIN: stack.enter_context(optc.load(arguments.artifact, **options))}
        for kind in arguments.speculate:
            loaded = optc.load(arguments.artifact, **options, **drafting, speculate=kind)
            engines[f"{kind} drafts"] = stack.enter_context(loaded)
        for engine in engines.values():
            engine.generate([WARM], optc.SamplingParams(max_tokens=8, ignore_eos=True))
        overhead = Overhead()
        overhead.watch(stack)
        for text in arguments.text:
            overhead.clear()
            rounds = list(in_turns(arguments, text, engines))
            for kind in arguments.speculate:
                pairs = [(results[PLAIN], results[f"{kind} drafts"]) for results in rounds]
                yield summary(arguments, kind, text, pairs) | (
                    overhead.to_json() if len(arguments.speculate) == 1 else {}
                )


def in_turns(
    arguments: argparse.Namespace, text: str, engines: Mapping[str, optc.Engine]
) -> Iterator[dict[str, dict[str, Any]]]:
    """The results of each engine for each batch of a text; another engine begins each time."""
    count = arguments.prompts * arguments.batch
    all_prompts: list[Any] = []
    for number in range(arguments.rounds):
        size = engines[PLAIN].spec.vocab_size
        all_prompts += prompts(text, count, size, arguments.corpus, number)
    # With one seed for all, requests would say alike at a temperature, and n-grams repeat.
    params = [
        optc.SamplingParams(
            temperature=arguments.temperature,
            max_tokens=arguments.tokens,
            ignore_eos=True,
            seed=seed,
        )
        for seed in range(len(all_prompts))
    ]
    names = list(engines)
    for turn, start in enumerate(range(0, len(all_prompts), arguments.batch)):
        batch = all_prompts[start : start + arguments.batch]
        own = params[start : start + arguments.batch]
        first = turn % len(names)
        order = names[first:] + names[:first]
        results = {name: decode(engines[name], batch, own) for name in order}
        if any(one["ids"] != results[PLAIN]["ids"] for one in results.values()):
            raise AssertionError("speculation changed the text")
        yield results


def summary(
    arguments: argparse.Namespace,
    kind: str,
    text: str,
    rounds: list[tuple[dict[str, Any], dict[str, Any]]],
) -> dict[str, Any]:
    """Speeds, acceptance and the median ratio with its range."""
    speeds = [
        sum(r[which]["tokens"] for r in rounds) / sum(r[which]["seconds"] for r in rounds)
        for which in (0, 1)
    ]
    ratios = sorted(
        r[1]["tokens"] / r[1]["seconds"] / (r[0]["tokens"] / r[0]["seconds"]) for r in rounds
    )
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    drafted = sum(r[1]["drafted"] for r in rounds)
    return {
        "artifact": Path(arguments.artifact).name,
        "speculate": kind,
        "text": text,
        "corpus": arguments.corpus.stem,
        "batch": arguments.batch,
        "temperature": arguments.temperature,
        "requests": arguments.prompts * arguments.batch * arguments.rounds,
        "tokens_each": arguments.tokens,
        "plain_tokens_per_s": round(speeds[0], 1),
        "speculative_tokens_per_s": round(speeds[1], 1),
        "speedup": round(speeds[1] / speeds[0], 3),
        "speedup_median": round(statistics.median(ratios), 3),
        "speedup_quartiles": [round(quartiles[0], 3), round(quartiles[2], 3)],
        "speedup_range": [round(ratios[0], 3), round(ratios[-1], 3)],
        "tokens_per_step": round(
            sum(r[0]["steps"] for r in rounds) / sum(r[1]["steps"] for r in rounds), 3
        ),
        "drafted": drafted,
        "acceptance": round(sum(r[1]["accepted"] for r in rounds) / max(1, drafted), 3),
    }


def listed(text: str) -> list[str]:
    """The parts of a text between commas, each once."""
    return list(dict.fromkeys(text.split(",")))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("artifact")
    parser.add_argument("--speculate", default="ngram", type=listed, help="one or more, by comma")
    parser.add_argument("--draft", help="artifact of a draft model")
    parser.add_argument("--num-speculative-tokens", type=int)
    parser.add_argument("--text", default="code", type=listed, help=f"of {', '.join(TEXTS)}")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=TEXT, help="JSON-lines file of texts")
    parser.add_argument("--prompts", type=int, default=8, help="batches of a round")
    parser.add_argument("--rounds", type=int, default=1, help="each with prompts of its own")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--append", type=Path, help="JSON file to add the result to")
    arguments = parser.parse_args()
    strange = sorted(set(arguments.text) - set(TEXTS))
    if strange:
        parser.error(f"no text is called {strange[0]!r}: there are {', '.join(TEXTS)}")
    if arguments.rounds > 1 and "edits" in arguments.text:
        parser.error("edits are of one round: there are few")
    for result in measure(arguments):
        print(json.dumps(result), flush=True)
        if arguments.append is not None:
            known = json.loads(arguments.append.read_text()) if arguments.append.exists() else []
            arguments.append.write_text(json.dumps([*known, result], indent=1) + "\n")


if __name__ == "__main__":
    main()
