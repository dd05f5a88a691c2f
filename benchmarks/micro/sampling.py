"""The cost of a row of sampling: the compiled kernel beside NumPy, microseconds a row.

``python -m benchmarks.micro.sampling [--vocab 49152] [--rounds 15]`` needs the compiler. Logits are
normal with a spread of 3, as trained models have; medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from optc.runtime.params import SamplingParams
from optc.runtime.sampling.sample_batch import pack
from optc.runtime.sampling.sampler import Row, sample
from optc.system.hardware.target import parse_target

CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.8},
    "top-k 50": {"temperature": 0.8, "top_k": 50},
    "top-p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "typical 0.95": {"temperature": 0.8, "typical_p": 0.95},
    "all filters": {
        "temperature": 0.8,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "logprobs": 5,
    },
}


def kernel(vocab: int) -> Callable[..., None]:
    """The compiled sampler for this machine."""
    import tvm

    from optc.backends.tvm.isa import isa_of
    from optc.backends.tvm.kernels.dsl import pipeline
    from optc.backends.tvm.kernels.sampling.sampling import Sampling, sampling

    isa = isa_of(parse_target("native"))
    function = sampling(Sampling(vocab), isa).with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": function})
    library = tvm.compile(module, isa.tvm_target(), tir_pipeline=pipeline.register())
    compiled: Callable[..., None] = library["main"]
    return compiled


def arguments(logits: Any, rows: list[Row]) -> list[Any]:
    """The kernel's arguments for one row of logits each."""
    import tvm

    batch = pack(rows, range(len(rows)), logits.shape[1])
    count = len(rows)
    arrays = (
        logits,
        batch.records,
        batch.records.view(np.float64),
        batch.tokens,
        batch.bias_ids,
        batch.biases,
        batch.masks,
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        np.zeros(count),
        np.zeros((count, batch.top), np.int32),
        np.zeros((count, batch.top)),
    )
    return [tvm.runtime.tensor(array) for array in arrays]


def microseconds(work: Callable[[], object]) -> float:
    """Time of one call."""
    started = time.perf_counter()
    work()
    return 1e6 * (time.perf_counter() - started)


def measure(vocab: int, count: int, rounds: int, compiled: Callable[..., None]) -> None:
    """Print a line for each case with ``count`` rows."""
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(count, vocab)) * 3).astype(np.float32)
    tokens = rng.integers(0, vocab, 500).astype(np.int32)
    for name, options in CASES.items():
        rows = [Row(SamplingParams(**options), 1, i, tokens, 100) for i in range(count)]
        tensors = arguments(logits, rows)
        works = (lambda t=tensors: compiled(*t), lambda r=rows: sample(logits, r))
        times: list[list[float]] = [[], []]
        for _ in range(rounds):
            for spent, work in zip(times, works, strict=True):
                spent.append(microseconds(work) / count)
        ours, theirs = (median(spent) for spent in times)
        print(f"{vocab:7d} {count:4d}  {name:14s} {ours:9.1f} {theirs:9.1f}", flush=True)


def main() -> None:
    """Measure all cases for one row and for 16."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab", type=int, nargs="+", default=[49152, 128256])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", default="2")
    options = parser.parse_args()
    os.environ.setdefault("TVM_NUM_THREADS", options.threads)
    print("  vocab rows  case            compiled     NumPy   (us a row)")
    for vocab in options.vocab:
        compiled = kernel(vocab)
        for count in options.rows:
            measure(vocab, count, options.rounds, compiled)


if __name__ == "__main__":
    main()
