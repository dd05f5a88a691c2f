"""Measure optc and its peers on the same weights in one run and print one table.

    python -m benchmarks.peers MODEL_FOLDER [--workdir DIR] [--rounds 3] [--only TEXT]…
                               [--text JSONL] [--perplexity-of JSON] [--kl-of JSON]
                               [--decode-only] [--json FILE]

Installs each peer into an environment of its own under the work folder, converts the model to
each format, then measures all of them in turns: prefill tokens/s, decode tokens/s of one
sequence, aggregate decode tokens/s of 8 and 16. Figures are medians over turns. Each round starts
the peers anew, from fresh copies of their files: the speed of memory depends on where in it the
weights come to lie (on the virtual machine of the recorded runs by a quarter), as long as a file
is cached.
With ``--text`` (a trained model) perplexity as well; ``--perplexity-of`` takes it from the results
of such a run, for a model with random weights. A second table compares optc with the peers of its
bit width (`comparison`), and, with ``--kl-of`` the results of `benchmarks.quality_per_byte`, a
third with the peers of no worse a KL. ``--decode-only`` measures decode of one sequence alone,
for many rows in little time. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.peers import comparison, environments, measuring, variants

_NOT_SHOWN = ("turns", "settings")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--workdir", type=Path, default=Path(".peers"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="rows whose label contains TEXT")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--context", type=int, default=128, help="tokens before decoding")
    parser.add_argument("--new", type=int, default=128, help="tokens of each sequence a round")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--perplexity-of", type=Path, help="results of a trained model")
    parser.add_argument("--kl-of", type=Path, help="results of benchmarks.quality_per_byte")
    parser.add_argument("--decode-only", action="store_true", help="one sequence, nothing else")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def text_windows(text: Path, model: Path, length: int, count: int) -> list[list[int]]:
    """Evenly spaced windows of the text, cut as the gates cut them."""
    from optc.reference.text import cut_windows, read_documents, token_stream

    config = json.loads((model / "config.json").read_text())
    stream = token_stream(
        read_documents(text),
        model / "tokenizer.json",
        config["bos_token_id"],
        config["eos_token_id"],
    )
    windows: list[list[int]] = cut_windows(stream, length - 1, count).tolist()
    return windows


def random_prompts(model: Path, length: int) -> list[list[int]]:
    """16 prompts of random tokens; the seed is fixed."""
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    draw = random.Random(0)
    return [[draw.randrange(3, vocabulary) for _ in range(length)] for _ in range(16)]


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows of the table, each with its medians."""
    chosen = [v for v in variants.VARIANTS if not args.only or any(o in v.label for o in args.only)]
    here = Path(sys.executable).parent
    root = args.workdir.resolve()
    plan = measuring.Plan(args.prompt, args.context, args.new)
    if args.decode_only:
        plan = replace(plan, batches=(1,), prefill=False)
    prompts = random_prompts(args.model, args.prompt)
    windows = text_windows(args.text, args.model, args.prompt, 60) if args.text else []
    models = []
    for variant in chosen:
        binaries = here if variant.peer == "optc" else environments.ensure(variant.peer, root)
        model = variants.convert(variant, binaries, args.model.resolve(), root)
        models.append((variant, binaries, model, measuring.Samples()))
    parameters = comparison.parameter_count(args.model)
    known = comparison.perplexities(args.perplexity_of)
    starts = {(v.peer, v.format): v.quality or v.format for v, *_ in models}
    kls = comparison.divergences(args.kl_of, starts) if args.kl_of else {}
    rows: list[dict[str, Any]] = []
    for number in range(1, args.rounds + 1):
        last = number == args.rounds
        with ExitStack() as stack:
            workers = []
            for variant, binaries, model, samples in models:
                path = stack.enter_context(variants.fresh_copy(model, root))
                command = variants.worker_command(variant, binaries, path, args.threads)
                worker = stack.enter_context(measuring.started(command))
                print(f"{variant.label}: ready, {worker.about['version']}", file=sys.stderr)
                workers.append((worker, samples))
            unused = [(worker, measuring.Samples()) for worker, _ in workers]
            measuring.measure_round(unused, plan.warm_up().columns(prompts))
            measuring.measure_round(workers, plan.columns(prompts))
            print(f"round {number} of {args.rounds}", file=sys.stderr)
            if not last:
                continue
            for (variant, _, model, samples), (worker, _) in zip(models, workers, strict=True):
                found = row(variant, model, worker, samples, windows)
                found["bits_per_weight"] = round(8 * model.weight_bytes / parameters, 2)
                if variant.label in known:
                    found["perplexity"] = known[variant.label]
                if variant.label in kls:
                    found["kl"] = kls[variant.label]
                rows.append(found)
    return rows


def row(
    variant: variants.Variant,
    model: variants.Converted,
    worker: measuring.Worker,
    samples: measuring.Samples,
    windows: list[list[int]],
) -> dict[str, Any]:
    """One row of the table."""
    found: dict[str, Any] = {
        "peer": variant.peer,
        "version": worker.about["version"],
        "format": variant.format,
        "bits": variant.bits,
        "settings": variant.settings,
        **{column: round(samples.median(column), 1) for column in samples.rates},
        "turns": {c: [round(x, 1) for x in r] for c, r in samples.rates.items()},
        "peak_rss_mb": round(worker.ask("memory")["peak_rss"] / 1e6),
        "disk_mb": round(model.bytes_on_disk / 1e6, 1),
        "convert_s": round(model.seconds, 1),
    }
    if windows:
        score = worker.ask("perplexity", windows=windows)
        found["perplexity"] = round(math.exp(score["nll"] / score["tokens"]), 3)
    return found


def print_table(rows: list[dict[str, Any]]) -> None:
    """Markdown on stdout, with the columns that any row has."""
    columns = [c for c in dict.fromkeys(c for r in rows for c in r) if c not in _NOT_SHOWN]
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for entry in rows:
        print("| " + " | ".join(str(entry.get(c, "-")) for c in columns) + " |")


def plan_of(args: argparse.Namespace) -> dict[str, int]:
    """What was asked of every row."""
    return {name: getattr(args, name) for name in ("prompt", "context", "new", "rounds", "threads")}


def main() -> None:
    """Measure, print, store."""
    args = arguments()
    rows = measure(args)
    ratios = comparison.ratios(rows)
    equal = comparison.at_equal_quality(rows)
    for table in (rows, ratios, equal):
        if table:
            print_table(table)
            print()
    if args.json:
        found = {"model": args.model.name, "plan": plan_of(args), "rows": rows, "ratios": ratios}
        found["at equal quality"] = equal
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
