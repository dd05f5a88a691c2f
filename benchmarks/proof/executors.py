"""Speed and memory of the executors of the dense form, in turns on one model.

    python -m benchmarks.proof.executors MODEL [--windows 8] [--rounds 5] [--json FILE]

PyTorch runs the reference, calibrations and variants; ONNX Runtime is its oracle. Each run is a
process of its own that imports MODEL and does one task: ``reference``, last hidden states and all
logits; ``hessians``, sums of x xᵀ of every layer's inputs; ``streams``, two runs side by side with
rounded weights; ``variants``, four models with a layer's weights rounded. Stated are medians of
seconds and of processor seconds of the task, and its peak of anonymous memory with the imported
model. ``agreement`` is the mean KL divergence between the logits of both, and that of a model
rounded to 4 bits from either. A slowdown of more than 5 % ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.compiling.lowering.lowering import dense_pipeline
from optc.compiling.resolving.memory import PeakMemory
from optc.importer.gguf.folder import gguf_folder
from optc.importer.import_model import import_model
from optc.ir.linear import find_linears
from optc.ir.weights import Array, LazyWeight
from optc.proof.reference.blockwise import BlockwiseReference, observe
from optc.proof.reference.execution import part
from optc.proof.reference.input_hessians import HessianObserver
from optc.proof.reference.partition import Block
from optc.proof.reference.streams.choice import products_here, run_products
from optc.proof.reference.streams.stage import Stage
from optc.proof.reference.two_streams import Pair, Seen, run_two_streams
from optc.proof.reference.variants.measure import measure_variants
from optc.proof.reference.variants.streaming_kl import StreamingKL
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads

EXECUTORS = ("onnxruntime", "torch")
SIZE = 512
#: More than this is a slowdown.
MOST = 1.05


def rounded(weight: LazyWeight) -> LazyWeight:
    """Rows rounded to 4 bits, one scale each."""

    def read(start: int, stop: int) -> Array:
        rows = np.asarray(weight.read_rows(start, stop), np.float32)
        step = np.abs(rows).max(axis=1, keepdims=True) / 7 + 1e-12
        near: Array = np.round(rows / step) * step
        return near

    return LazyWeight(
        read, weight.rows_shape, ir.DataType.FLOAT, weight.name or "", transposed=weight.transposed
    )


class Rounder:
    """Replaces all weights by `rounded` ones (a `Replacer`)."""

    def compared(self, stage: Stage) -> Iterable[ir.Value]:
        """Nothing."""
        return ()

    def weights(self, stage: Stage, seen: Seen) -> Mapping[ir.Value, Array]:
        """Rounded rows."""
        every = ((one.initializer, rounded(one.weight)) for one in stage.linears)
        return {value: weight.read_rows(0, weight.rows_shape[0]) for value, weight in every}

    def head_input(self, hidden: Pair) -> None:
        """Nothing is asked of it."""

    def block_done(self, block: Block, values: Pair) -> None:
        """Nothing is asked of it."""


def reference(model: ir.Model, tokens: Int32, threads: int) -> dict[str, Any]:
    """Hidden states and logits."""
    run = BlockwiseReference(model, threads)
    hidden = run.hidden_states(tokens)
    for tile in run.tiles():
        for at in range(0, len(hidden), SIZE):
            run.logits(hidden[at : at + SIZE], tile)
    run.close()
    return {}


def hessians(model: ir.Model, tokens: Int32, threads: int) -> dict[str, Any]:
    """A calibration."""
    inputs = {one.x for one in find_linears(model)}
    observe(model, tokens, [HessianObserver(inputs, lambda value, found: None)], threads)
    return {}


def streams(model: ir.Model, tokens: Int32, threads: int) -> dict[str, Any]:
    """Two runs."""
    name = products_here()
    run_two_streams(model, tokens, Rounder(), run_products((name, name), threads), threads)
    return {"products": name}


def variants(model: ir.Model, tokens: Int32, threads: int) -> dict[str, Any]:
    """Four variants."""
    linears = find_linears(model)
    chosen = [linears[at * (len(linears) - 1) // 4] for at in range(4)]
    kl = measure_variants(
        model, tokens, [{one.initializer: rounded(one.weight)} for one in chosen], threads
    )
    return {"kl": kl.tolist()}


TASKS: Mapping[str, Callable[[ir.Model, Int32, int], dict[str, Any]]] = {
    "reference": reference,
    "hessians": hessians,
    "streams": streams,
    "variants": variants,
}


def agreement(model: ir.Model, tokens: Int32, threads: int) -> dict[str, float]:
    """Mean KL in nats a token: between both executors, and of a rounded model from either."""
    runs = []
    for name in EXECUTORS:
        part.EXECUTOR = name
        runs.append(BlockwiseReference(model, threads))
    changed = model.clone()
    for one in find_linears(changed):
        one.initializer.const_value = rounded(one.weight)
    part.EXECUTOR = EXECUTORS[0]
    runs.append(BlockwiseReference(changed, threads))
    hidden = [run.hidden_states(tokens) for run in runs]
    sums = [StreamingKL(len(hidden[0]), count) for count in (2, 1)]
    for tiles in zip(*(run.tiles() for run in runs), strict=True):
        every = zip(runs, hidden, tiles, strict=True)
        old, new, other = (run.logits(states, tile) for run, states, tile in every)
        sums[0].add(slice(0, len(old)), old, [new, other])
        sums[1].add(slice(0, len(old)), new, [other])
    between, from_old = sums[0].means()
    (from_new,) = sums[1].means()
    return {
        "between": float(between),
        "rounded_from_onnxruntime": float(from_old),
        "rounded_from_torch": float(from_new),
        "difference": abs(float(from_old - from_new)),
    }


def loaded(path: Path, windows: int) -> tuple[ir.Model, Int32]:
    """The dense form, and windows of drawn tokens."""
    model = import_model(path).model
    dense_pipeline().run(model)
    run = BlockwiseReference(model, 1)
    drawn = np.random.default_rng(0).integers(0, run.vocab_size, (windows, SIZE))
    run.close()
    return model, drawn.astype(np.int32)


def child(arguments: argparse.Namespace) -> None:
    """One run of one task; prints JSON."""
    executor, task = arguments.child
    model, tokens = loaded(arguments.model, arguments.windows)
    if task == "agreement":
        print(json.dumps(agreement(model, tokens[:2], arguments.threads)))
        return
    part.EXECUTOR = executor
    with PeakMemory(0) as memory:
        before, started = _processor_seconds(), time.perf_counter()
        found = TASKS[task](model, tokens, arguments.threads)
        seconds = time.perf_counter() - started
        memory.sample()
    spent = _processor_seconds() - before
    peak = memory.peak_bytes
    print(json.dumps({"seconds": seconds, "cpu_seconds": spent, "peak_bytes": peak, **found}))


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def ask(arguments: argparse.Namespace, executor: str, task: str) -> dict[str, Any]:
    """The figures of a child."""
    command = [sys.executable, "-m", "benchmarks.proof.executors", str(arguments.model)]
    command += ["--windows", str(arguments.windows), "--threads", str(arguments.threads)]
    done = subprocess.run(
        [*command, "--child", executor, task], check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Run the tasks in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=usable_threads())
    parser.add_argument("--only", choices=[*TASKS, "agreement"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return 0
    arguments.model = gguf_folder(arguments.model) if arguments.model.is_file() else arguments.model
    found: dict[str, Any] = {"load": os.getloadavg()[0], "tasks": {}}
    slow = False
    for task in [one for one in TASKS if arguments.only in (None, one)]:
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in EXECUTORS}
        for turn in range(arguments.rounds):
            for name in EXECUTORS[:: 1 if turn % 2 else -1]:
                runs[name].append(ask(arguments, name, task))
        rows = {name: _row(every) for name, every in runs.items()}
        for name, row in rows.items():
            print(f"{task:10} {name:12} " + "  ".join(f"{k} {v:,.2f}" for k, v in row.items()))
        old, new = (rows[name]["seconds"] for name in EXECUTORS)
        print(f"{task:10} torch takes {new / old:.2f} of ONNX Runtime's time", flush=True)
        slow |= new > MOST * old
        found["tasks"][task] = rows
    if arguments.only in (None, "agreement"):
        found["agreement"] = ask(arguments, "both", "agreement")
        print(json.dumps(found["agreement"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(slow)


def _row(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Medians of seconds, and the largest peak."""
    return {
        "seconds": median(run["seconds"] for run in runs),
        "cpu_seconds": median(run["cpu_seconds"] for run in runs),
        "peak_mb": max(run["peak_bytes"] for run in runs) / 1e6,
    }


if __name__ == "__main__":
    sys.exit(main())
