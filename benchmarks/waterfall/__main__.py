"""Tokens/s, bytes and KL of a model as techniques are added one by one.

    python -m benchmarks.waterfall MODEL [--rounds 3] [--windows 16] [--only TEXT]…
        [--workdir DIR] [--json FILE] [--svg FILE]

MODEL is smollm2-135m-instruct, gemma-3-270m or a Hugging Face folder. Steps: PyTorch eager, a
compiled float32 engine with fusion, bfloat16, int8 weights, int8 activations, int8 KV, continuous
batching, prefix cache, speculation. Requests are those of a chat server (`workload`): all prompts
begin alike, answers have different lengths, few of them long. A figure is wanted output tokens
over all seconds, prompts included: of requests one after the other, and of sixteen at once. Up to
int8 KV the sixteen are static batches, in which a request waits for the longest. Steps take turns
in each round; figures are medians over rounds. KL is that of the whole engine on the windows of
`benchmarks.quality_per_byte`; bytes are those of all weights, and of the KV of a token. Run it on
an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import comparison, conversion, measuring, subjects, variants
from benchmarks.peers.__main__ import print_table
from benchmarks.peers.subjects import Subject
from benchmarks.quality_per_byte.engines.evaluate import Evaluator, windows_of
from benchmarks.waterfall.picture import picture
from benchmarks.waterfall.runners import runner, seconds_alone, seconds_together
from benchmarks.waterfall.steps import STEPS, Step
from benchmarks.waterfall.workload import Request, Workload
from optc.artifact.artifact import Artifact
from optc.errors import OptcError


@dataclass
class Measured:
    """A step: what it runs on, and its figures."""

    step: Step
    path: Path
    weight_bytes: int
    kv_bytes: int
    figures: dict[str, float]
    one: list[float] = field(default_factory=list)
    sixteen: list[float] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Its line of the table."""
        return {
            "step": self.step.name,
            "one": round(statistics.median(self.one), 1),
            "sixteen": round(statistics.median(self.sixteen), 1),
            "mb": round(self.weight_bytes / 1e6, 1),
            "kv_bytes_per_token": self.kv_bytes,
            "kl": float(f"{self.figures['kl_mean']:.3g}"),
            "top1": round(self.figures["top1_agreement"], 4),
        }


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.waterfall", description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=16, help="of 512 tokens, for KL")
    parser.add_argument("--only", action="append", help="steps whose name contains TEXT")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--workdir", type=Path, default=Path(".peers"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    return parser.parse_args()


def subject_of(model: str) -> Subject:
    """A real model by name, or a folder.

    Raises:
        InputError, UnavailableError: It is neither, or cannot be had.
    """
    folder = Path(model)
    return subjects.folder_subject(folder) if folder.is_dir() else subjects.real_subject(model)


def prepared(
    step: Step, subject: Subject, evaluator: Evaluator, root: Path, threads: int
) -> Measured:
    """A step compiled and judged."""
    if step.variant is None:
        exact = {"kl_mean": 0.0, "top1_agreement": 1.0}  # it is the reference
        size = 4 * comparison.parameter_count(subject.folder)
        return Measured(step, subject.folder, size, eager_kv_bytes(subject), exact)
    here = Path(sys.executable).parent
    model = conversion.convert(step.variant, here, subject, root)
    with measuring.started(
        variants.worker_command(step.variant, here, model.path, threads)
    ) as worker:
        figures = evaluator.of_worker(worker, root)
    spec = Artifact.open(model.path, "size").engine().spec
    return Measured(step, model.path, model.weight_bytes, spec.kv_bytes_per_token, figures)


def eager_kv_bytes(subject: Subject) -> int:
    """Bytes of keys and values of a token in float32."""
    config = json.loads((subject.folder / "config.json").read_text("utf-8"))
    heads = config["num_key_value_heads"] * config["head_dim"]
    return int(2 * 4 * heads * config["num_hidden_layers"])


def measure(one: Measured, requests: list[Request], alone: int, threads: int) -> None:
    """One round of a step."""
    with runner(one.step, one.path, threads) as found:
        # another prompt than those that are measured: nothing of them is cached
        found.generate([Request(requests[0].prompt[::-1], 4)])
        single = requests[:alone]
        seconds = seconds_alone(found, single)
        one.one.append(sum(request.new for request in single) / seconds)
        seconds = seconds_together(found, requests, continuous=one.step.continuous)
        one.sixteen.append(sum(request.new for request in requests) / seconds)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """All steps; the content of the result file.

    Raises:
        InputError, UnavailableError: The model cannot be had.
    """
    subject, root = subject_of(args.model), args.workdir.resolve()
    root.mkdir(parents=True, exist_ok=True)
    windows = windows_of(subject, None, args.windows)
    evaluator = Evaluator(subject, windows, root / "quality")
    chosen = [s for s in STEPS if not args.only or any(text in s.name for text in args.only)]
    found = []
    for step in chosen:
        found.append(prepared(step, subject, evaluator, root, args.threads))
        print(f"{step.name}: KL {found[-1].figures['kl_mean']:.5f}", file=sys.stderr)
    workload = Workload()
    requests = workload.of(subject)
    for number in range(1, args.rounds + 1):
        for one in found:
            measure(one, requests, workload.alone, args.threads)
        print(f"round {number} of {args.rounds}", file=sys.stderr)
    return {
        "model": subject.name,
        "note": subject.note,
        "workload": asdict(workload),
        "rounds": args.rounds,
        "threads": args.threads,
        "windows": len(windows),
        "rows": [one.row() for one in found],
    }


def main() -> None:
    """Measure, print, draw, store."""
    args = arguments()
    try:
        content = run(args)
    except OptcError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print_table(content["rows"])
    if content["note"]:
        print(f"note: {content['note']}")
    if args.json:
        args.json.write_text(json.dumps(content, indent=1) + "\n")
    if args.svg:
        args.svg.write_text(picture(content["model"], content["rows"]))


if __name__ == "__main__":
    main()
