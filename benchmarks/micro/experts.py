"""Measure the matmuls by experts next to the plain matmul, in one interleaved run.

Run ``python -m benchmarks.micro.experts [--n 1536] [--k 2048] [--only int8,int4g32int] [--json]``.

For each weight format: GB/s of the weights of the experts that a step's tokens choose at random,
and Gop/s. Decode is compared with the plain matmul that reads as many bytes (one of the channels of
all experts of one token), with as many rows as an expert has on average; prefill with the plain
matmul of as many rows in all. Given are the best round, and the median of each round's rate as a
share of the plain matmul's in the same round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from benchmarks.micro.kernels import IntConfig, Kernel, in_huge_pages
from optc.backends.tvm.compiling.compiled_kernels import compiled_kernels
from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.experts.expert_plan import ExpertPlan, expert_plan
from optc.backends.tvm.kernels.experts.float_experts import FloatExperts, float_experts
from optc.backends.tvm.kernels.experts.int_experts import IntExperts, int_experts
from optc.backends.tvm.kernels.experts.two_level_experts import TwoLevelExperts, two_level_experts
from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul
from optc.backends.tvm.loaded.thread_pool import want_threads
from optc.system.hardware.target import parse_target, usable_threads

#: Tokens of a step that are measured by default.
TOKENS = (1, 2, 4, 8, 16, 512)
#: Rows of an expert up to which a step is bound by the bytes of weights.
FEW_ROWS = 8

Config = IntExperts | TwoLevelExperts | FloatExperts
Plain = IntMatmul | TwoLevelMatmul | FloatMatmul


@dataclass(frozen=True)
class Shape:
    """Of the experts: E, k, and the channels of one."""

    experts: int
    chosen: int
    n: int
    k: int


def formats(shape: Shape) -> dict[str, tuple[Config, Callable[[int], Plain]]]:
    """The measured formats by name: by experts, and the plain matmul of any N."""
    n, k = shape.n, shape.k
    who: dict[str, Any] = {"experts": shape.experts, "chosen": shape.chosen, "spread": True}
    return {
        "int8": (IntExperts(n, k, **who), lambda n: IntMatmul(n, k)),
        "int4g32": (IntExperts(n, k, 4, 32, **who), lambda n: IntMatmul(n, k, 4, 32)),
        "int4g32int": (TwoLevelExperts(n, k, **who), lambda n: TwoLevelMatmul(n, k)),
        "bf16": (FloatExperts(n, k, "bfloat16", **who), lambda n: FloatMatmul(n, k, "bfloat16")),
        "fp32": (FloatExperts(n, k, **who), lambda n: FloatMatmul(n, k)),
    }


class ByExperts:
    """A compiled matmul by experts with random weights."""

    def __init__(self, config: Config, isa: Isa, clock: Callable[[], float]) -> None:
        self.config, self.clock, self.rng = config, clock, np.random.default_rng(0)
        plan = expert_plan(ExpertPlan(config.experts, config.chosen), isa)
        if isinstance(config, IntExperts):
            function = int_experts(config, isa)
        elif isinstance(config, TwoLevelExperts):
            function = two_level_experts(config, isa)
        else:
            function = float_experts(config, isa)
        library = compiled_kernels({config.name: function, "plan": plan}, isa)
        self.function = library.get_function(config.name)
        self.plan = library.get_function("plan")
        weights = [self._values(*operand) for operand in config.weights.values()]
        self.bytes_of_one = sum(w.nbytes for w in weights) / config.experts
        self.weights = [in_huge_pages(values) for values in weights]

    def _values(self, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        if dtype.startswith("float"):
            return self.rng.standard_normal(shape, np.float32).astype(dtype)
        if dtype == "uint16":
            floats = self.rng.standard_normal(shape, np.float32)
            return (floats.view(np.uint32) >> 16).astype(np.uint16)
        return self.rng.integers(0, 16, shape, np.uint8).astype(dtype)

    def prepare(self, tokens: int) -> Callable[[], tuple[float, float]]:
        """A call with so many tokens, each time with other experts; gives the seconds that it took
        and the bytes of the chosen experts' weights."""
        config = self.config
        rows = tokens * config.chosen
        x = self._activations(tokens)
        plan = [tvm.runtime.empty(s, "int32", tvm.cpu()) for s in ((rows,), (rows, 3), (1,))]
        out = tvm.runtime.empty((rows, config.n), "float32", tvm.cpu())

        def call() -> tuple[float, float]:
            order = self.rng.random((tokens, config.experts)).argsort(axis=1)
            experts = np.ascontiguousarray(order[:, : config.chosen], np.int32)
            self.plan(tvm.runtime.tensor(experts, tvm.cpu()), *plan)
            started = self.clock()
            self.function(*x, *plan, *self.weights, out)
            return self.clock() - started, len(np.unique(experts)) * self.bytes_of_one

        return call

    def _activations(self, tokens: int) -> list[Any]:
        config = self.config
        operands: list[tuple[tuple[int, ...], str]] = [((tokens, config.k), "float32")]
        if isinstance(config, IntConfig):
            padded = config.k_padded
            operands = [((tokens, padded), "int8"), ((tokens,), "float32")]
            operands.append(((tokens, padded // 32), "int32"))
        return [tvm.runtime.tensor(self._values(*o), tvm.cpu()) for o in operands]


def measure(
    shape: Shape, isa: Isa, cpu_time: bool, only: list[str], tokens: list[int], rounds: int
) -> dict[str, Any]:
    """All figures of one run as one JSON object."""
    threads = 1 if cpu_time else usable_threads()
    want_threads(threads)
    clock = time.thread_time if cpu_time else time.perf_counter
    results = []
    for name, (config, plain) in formats(shape).items():
        if only and name not in only:
            continue
        kernel = ByExperts(config, isa, clock)
        one, wide = (Kernel(plain(n), isa, clock) for n in (shape.n, shape.n * shape.chosen))
        for count in tokens:
            found = _compare(shape, kernel, (one, wide), count, rounds)
            results.append({"format": name, "tokens": count, **found})
    return {"isa": isa.name, "threads": threads, "shape": vars(shape), "results": results}


def _compare(
    shape: Shape, kernel: ByExperts, plain: tuple[Kernel, Kernel], tokens: int, rounds: int
) -> dict[str, Any]:
    """Rates of a step of so many tokens, and their shares of the plain matmul's."""
    one, wide = plain
    rows = tokens * shape.chosen
    different = shape.experts * (1 - (1 - shape.chosen / shape.experts) ** tokens)
    decode = rows / different <= FEW_ROWS
    mates = max(1, round(rows / different))
    ours = kernel.prepare(tokens)
    dense, dense_ops = (
        (wide.prepare(mates), 0) if decode else (one.prepare(rows), 2 * rows * shape.n * shape.k)
    )
    kernel.prepare(shape.experts)()  # all weights are read once before
    rates, shares, seconds = [], [], []
    for _ in range(rounds):
        took, read = ours()
        dense_took = dense()
        if decode:
            rate, against = read / took, wide.bytes / dense_took
        else:
            rate, against = dense_ops / took, dense_ops / dense_took
        rates.append(rate / 1e9)
        shares.append(rate / against)
        seconds.append(took)
    return {
        "unit": "GB/s" if decode else "Gop/s",
        "best_ms": 1e3 * min(seconds),
        "best": max(rates),
        "median": statistics.median(rates),
        "of_plain": statistics.median(shares),
        "plain_rows": mates if decode else rows,
    }


def show(report: dict[str, Any]) -> None:
    """Print the report as a table."""
    shape = Shape(**report["shape"])
    print(f"{report['isa']}, {report['threads']} threads, {shape}")
    print("format      tokens    best ms      best    median           of plain  (rows)")
    for row in report["results"]:
        print(
            f"{row['format']:11} {row['tokens']:6}  {row['best_ms']:9.3f} {row['best']:9.1f} "
            f"{row['median']:9.1f} {row['unit']:6} {row['of_plain']:10.3f}  ({row['plain_rows']})"
        )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--chosen", type=int, default=8, help="experts of a token")
    parser.add_argument("--n", type=int, default=1536, help="output channels of an expert")
    parser.add_argument("--k", type=int, default=2048, help="input channels")
    parser.add_argument("--target", default="native", help="as of optc compile")
    parser.add_argument("--only", default="int8,int4g32int", help="formats, separated by commas")
    parser.add_argument("--tokens", default=",".join(map(str, TOKENS)), help="by commas")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cpu-time", action="store_true", help="one thread, processor time")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    report = measure(
        Shape(options.experts, options.chosen, options.n, options.k),
        isa_of(parse_target(options.target)),
        options.cpu_time,
        [name for name in options.only.split(",") if name],
        [int(count) for count in options.tokens.split(",")],
        options.rounds,
    )
    if options.json:
        print(json.dumps({"schema": 1, "warnings": [], **report}))
    else:
        show(report)


if __name__ == "__main__":
    main()
