"""Measure optc and its peers on the same weights in one run and print one table.

    python -m benchmarks.peers --model smollm2-135m-instruct|gemma-3-270m | MODEL_FOLDER
                               [--workdir DIR] [--rounds 3] [--only TEXT]… [--kl-of JSON]
                               [--text JSONL] [--perplexity-of JSON] [--decode-only] [--json FILE]

With ``--model`` a real model: every peer converts the same float weights, calibrates where it can,
and what is measured are the engines that `benchmarks.quality_per_byte` judges under the same work
folder. With a folder a model whose weights are random: nothing calibrates, and its pace alone
counts.

Installs each peer into an environment of its own under the work folder, converts the model to
each format, then measures all of them in turns: prefill tokens/s, decode tokens/s of one
sequence, aggregate decode tokens/s of 8 and 16. Figures are medians over turns. A peer that cannot
be installed, converted or started is listed with its reason. Each round starts
the peers anew, from fresh copies of their files: the speed of memory depends on where in it the
weights come to lie (on the virtual machine of the recorded runs by a quarter), as long as a file
is cached.
With ``--text`` (a trained model) perplexity as well; ``--perplexity-of`` takes it from the results
of such a run, for a model with random weights. A second table compares optc with the peers of its
bit width (`comparison`), and a third with the peers of no worse a KL: that of whole engines in the
results of `benchmarks.quality_per_byte` (``--kl-of``; of a real model those that are recorded).
``--decode-only`` measures decode of one sequence alone, for many rows in little time. Run it on an
otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.peers import comparison, conversion, environments, measuring, subjects, variants
from benchmarks.peers.conversion import Converted
from benchmarks.peers.subjects import Subject
from benchmarks.peers.tools import FailedError
from optc.errors import OptcError

RESULTS = Path(__file__).resolve().parents[1] / "results"
_NOT_SHOWN = ("turns", "settings")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", type=Path, nargs="?", help="a Hugging Face folder")
    what.add_argument("--model", choices=subjects.NAMES, help="a real model")
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
    from optc.proof.conversations.tokens import token_stream, window_start
    from optc.proof.reference.text import cut_windows, read_documents

    config = json.loads((model / "config.json").read_text())
    tokenizer, bos = model / "tokenizer.json", config["bos_token_id"]
    stream = token_stream(read_documents(text), tokenizer, bos, config["eos_token_id"])
    start = window_start(tokenizer, bos)
    windows: list[list[int]] = cut_windows(stream, length - 1, count, start).tolist()
    return windows


def random_prompts(model: Path, length: int) -> list[list[int]]:
    """16 prompts of random tokens; the seed is fixed."""
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    draw = random.Random(0)
    return [[draw.randrange(3, vocabulary) for _ in range(length)] for _ in range(16)]


@dataclass
class Entry:
    """A row while it is measured."""

    variant: variants.Variant
    binaries: Path
    model: Converted
    samples: measuring.Samples = field(default_factory=measuring.Samples)


@dataclass
class Run:
    """Rows of one run, and what could not be measured."""

    subject: Subject
    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)

    def miss(self, variant: variants.Variant, error: Exception) -> None:
        """Keep the reason why a variant has no row."""
        self.missing.append({"peer": variant.peer, "format": variant.format,
                             "reason": str(error)[-300:]})  # fmt: skip
        print(f"{variant.label}: {error}", file=sys.stderr)


#: What keeps a variant from being measured.
_FAILURES = (OSError, FailedError)


def subject_of(args: argparse.Namespace) -> Subject:
    """The model that the command line names.

    Raises:
        InputError, UnavailableError: A real model cannot be had.
    """
    return subjects.real_subject(args.model) if args.model else subjects.folder_subject(args.folder)


def converted(args: argparse.Namespace, run: Run) -> list[Entry]:
    """All variants that can be installed and converted."""
    root = args.workdir.resolve()
    found = []
    for variant in variants.VARIANTS:
        if args.only and not any(text in variant.label for text in args.only):
            continue
        try:
            binaries = environments.binaries(variant.peer, root)
            model = conversion.convert(variant, binaries, run.subject, root)
        except _FAILURES as error:
            run.miss(variant, error)
            continue
        found.append(Entry(variant, binaries, model))
    return found


def measure(args: argparse.Namespace) -> Run:
    """All rows of the table, each with its medians."""
    run = Run(subject_of(args))
    plan = measuring.Plan(args.prompt, args.context, args.new)
    if args.decode_only:
        plan = replace(plan, batches=(1,), prefill=False)
    prompts = random_prompts(run.subject.folder, args.prompt)
    entries = converted(args, run)
    for number in range(1, args.rounds + 1):
        with ExitStack() as stack:
            workers = started(entries, args, run, stack)
            unused = [(worker, measuring.Samples()) for _, worker in workers]
            measuring.measure_round(unused, plan.warm_up().columns(prompts))
            measured = [(worker, entry.samples) for entry, worker in workers]
            measuring.measure_round(measured, plan.columns(prompts))
            print(f"round {number} of {args.rounds}", file=sys.stderr)
            if number == args.rounds:
                run.rows = rows(args, run.subject, workers)
        entries = [entry for entry, _ in workers]
    return run


def started(
    entries: list[Entry], args: argparse.Namespace, run: Run, stack: ExitStack
) -> list[tuple[Entry, measuring.Worker]]:
    """A worker for each entry, from fresh copies; those that do not start are missing."""
    root = args.workdir.resolve()
    found = []
    for entry in entries:
        path = stack.enter_context(conversion.fresh_copy(entry.model, root))
        command = variants.worker_command(entry.variant, entry.binaries, path, args.threads)
        try:
            worker = stack.enter_context(measuring.started(command))
        except _FAILURES as error:
            run.miss(entry.variant, error)
            continue
        print(f"{entry.variant.label}: ready, {worker.about['version']}", file=sys.stderr)
        found.append((entry, worker))
    return found


def rows(
    args: argparse.Namespace, subject: Subject, workers: list[tuple[Entry, measuring.Worker]]
) -> list[dict[str, Any]]:
    """The table: what was measured, and what is known of quality."""
    windows = text_windows(args.text, subject.folder, args.prompt, 60) if args.text else []
    parameters = comparison.parameter_count(subject.folder)
    known = comparison.perplexities(args.perplexity_of)
    starts = {(e.variant.peer, e.variant.format): e.variant.quality or e.variant.format
              for e, _ in workers}  # fmt: skip
    results = args.kl_of or _recorded(subject)
    kls = comparison.divergences(results, starts) if results else {}
    found = []
    for entry, worker in workers:
        label = entry.variant.label
        one = row(entry.variant, entry.model, worker, entry.samples, windows)
        one["bits_per_weight"] = round(8 * entry.model.weight_bytes / parameters, 2)
        one |= {name: values[label] for name, values in (("perplexity", known), ("kl", kls))
                if label in values}  # fmt: skip
        found.append(one)
    return found


def _recorded(subject: Subject) -> Path | None:
    path = RESULTS / f"quality-per-byte-{subject.name}.json"
    return path if subject.gguf is not None and path.exists() else None


def row(
    variant: variants.Variant,
    model: Converted,
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
    """The settings that all rows share."""
    return {name: getattr(args, name) for name in ("prompt", "context", "new", "rounds", "threads")}


def main() -> None:
    """Measure, print, store."""
    args = arguments()
    try:
        run = measure(args)
    except OptcError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    ratios = comparison.ratios(run.rows)
    equal = comparison.at_equal_quality(run.rows)
    for table in (run.rows, ratios, equal, run.missing):
        if table:
            print_table(table)
            print()
    if run.subject.note:
        print(f"note: {run.subject.note}")
    if args.json:
        found = {"model": run.subject.name, "note": run.subject.note, "plan": plan_of(args),
                 "rows": run.rows, "ratios": ratios}  # fmt: skip
        found |= {"at equal quality": equal, "missing": run.missing}
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
