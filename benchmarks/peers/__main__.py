"""Measure optc and its peers on the same weights in one run and print one table.

    python -m benchmarks.peers MODEL_FOLDER [--workdir DIR] [--rounds 3] [--only TEXT]…
                               [--text JSONL] [--json FILE]

Installs each peer into an environment of its own under the work folder, converts the model to
each format, then measures all of them in turns: prefill tokens/s, decode tokens/s of one
sequence, aggregate decode tokens/s of 8 and 16. Figures are medians over rounds. With ``--text``
(a trained model) perplexity as well. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.peers import environments, measuring, variants


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--workdir", type=Path, default=Path(".peers"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="rows whose label contains TEXT")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def text_windows(text: Path, model: Path, length: int, count: int) -> list[list[int]]:
    """Evenly spaced windows of the text, cut as the gates cut them."""
    from optc.gates.text import cut_windows, read_documents, token_stream

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
    plan = measuring.Plan(prompt=args.prompt)
    prompts = random_prompts(args.model, args.prompt)
    windows = text_windows(args.text, args.model, args.prompt, 60) if args.text else []
    rows, workers = [], []
    with ExitStack() as stack:
        for variant in chosen:
            own = variant.peer == "optc"
            binaries = here if own else environments.ensure(variant.peer, root)
            model = variants.convert(variant, binaries, args.model.resolve(), root)
            command = variants.worker_command(variant, binaries, model.path, args.threads)
            worker = stack.enter_context(measuring.started(command))
            print(f"{variant.label}: ready, {worker.about['version']}", file=sys.stderr)
            workers.append((variant, model, worker, measuring.Samples()))
        for variant, _, worker, samples in workers * (args.rounds + 1):
            measuring.measure_round(worker, plan, prompts, samples)
            print(f"{variant.label}: {len(samples.rates['prefill'])} rounds", file=sys.stderr)
        for variant, model, worker, samples in workers:
            samples.drop_first()
            rows.append(row(variant, model, worker, samples, windows))
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
        **{column: round(samples.median(column), 1) for column in samples.rates},
        "rounds": {c: [round(x, 1) for x in r] for c, r in samples.rates.items()},
        "peak_rss_mb": round(worker.ask("memory")["peak_rss"] / 1e6),
        "disk_mb": round(model.bytes_on_disk / 1e6, 1),
        "convert_s": round(model.seconds, 1),
    }
    if windows:
        score = worker.ask("perplexity", windows=windows)
        found["perplexity"] = round(math.exp(score["nll"] / score["tokens"]), 3)
    return found


def print_table(rows: list[dict[str, Any]]) -> None:
    """Markdown on stdout."""
    columns = [c for c in rows[0] if c not in ("rounds",)]
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for entry in rows:
        print("| " + " | ".join(str(entry[c]) for c in columns) + " |")


def main() -> None:
    """Measure, print, store."""
    args = arguments()
    rows = measure(args)
    print_table(rows)
    if args.json:
        args.json.write_text(json.dumps({"model": args.model.name, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
