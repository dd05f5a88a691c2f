"""Measure the matmul kernels next to what the machine can do, in one interleaved run.

Run ``python -m benchmarks.micro.kernels [--n 8192] [--k 2048] [--only int8,int4g32] [--json]``.

For each weight format: GB/s of weights at one row and its share of the best read bandwidth, Gop/s
at more rows and their share of the peak of the instruction that does the work. Weights rotate
through more memory than caches hold. Every kernel and every ceiling runs once in each round. Given
are the median and the best round: other programs on the machine only ever slow a round down.
With ``--cpu-time``, one thread runs and its processor time counts, which other programs change
least.

Formats such as ``sparse50`` are int8 weights of which 50 % are zero. The last column is the median
of each round's time as a share of int8's in the same round.
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
import tvm_ffi

from optc.backends.tvm.compiling.compiled_kernels import compiled_kernels
from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.matmul.int_tiles import int_matmul
from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul, float_matmul
from optc.backends.tvm.kernels.matmul.matmul_int import IntMatmul
from optc.backends.tvm.kernels.matmul.matmul_sparse import SparseMatmul, sparse_matmul
from optc.backends.tvm.kernels.matmul.matmul_two_level import TwoLevelMatmul, two_level_matmul
from optc.backends.tvm.loaded.huge_pages import anonymous
from optc.backends.tvm.loaded.thread_pool import want_threads
from optc.backends.tvm.measuring.ceilings import Meter
from optc.backends.tvm.measuring.ceilings_kernels import ceiling_kernels
from optc.backends.tvm.weights.sparse_packing import (
    SLACK,
    count_nonzeros,
    pack_sparse,
    starts,
)
from optc.system.hardware.cpu_caches import beyond_caches
from optc.system.hardware.target import parse_target, usable_threads

#: Rows that are measured by default.
ROWS = (1, 2, 4, 8, 16, 32, 512)
#: The format that others are compared with.
DENSE = "int8"


@dataclass(frozen=True)
class SparseFormat:
    """A sparse matmul.

    Attributes:
        matmul: Its config.
        zeros: Share of the weights that are zero.
    """

    matmul: SparseMatmul
    zeros: float


IntConfig = IntMatmul | TwoLevelMatmul | SparseMatmul
Config = IntConfig | FloatMatmul


def formats(n: int, k: int, isa: Isa) -> dict[str, Config | SparseFormat]:
    """The measured formats by name, those that the instruction set has kernels for."""
    shares = (50, 60, 70) if isa.expands else ()
    return {
        "int8": IntMatmul(n, k),
        "int8g128": IntMatmul(n, k, 8, 128),
        "int4g32": IntMatmul(n, k, 4, 32),
        "int4g32zp": IntMatmul(n, k, 4, 32, asymmetric=True),
        "int4g128": IntMatmul(n, k, 4, 128),
        "int4g32int": TwoLevelMatmul(n, k, 32),
        "int6g32int": TwoLevelMatmul(n, k, 32, bits=6),
        "int5g32int": TwoLevelMatmul(n, k, 32, bits=5),
        "int4g64int": TwoLevelMatmul(n, k, 64),
        "int3g32int": TwoLevelMatmul(n, k, 32, bits=3),
        "int3g64int": TwoLevelMatmul(n, k, 64, bits=3),
        "int2g32int": TwoLevelMatmul(n, k, 32, bits=2),
        "int2g64int": TwoLevelMatmul(n, k, 64, bits=2),
        "bf16": FloatMatmul(n, k, "bfloat16"),
        "fp32": FloatMatmul(n, k),
        **{f"sparse{share}": SparseFormat(SparseMatmul(n, k), share / 100) for share in shares},
    }


class Kernel:
    """One compiled kernel with enough random weights that caches do not help."""

    def __init__(
        self, format_: Config | SparseFormat, isa: Isa, clock: Callable[[], float]
    ) -> None:
        config = format_.matmul if isinstance(format_, SparseFormat) else format_
        self.config, self.clock = config, clock
        self.zeros = format_.zeros if isinstance(format_, SparseFormat) else 0.0
        self.rng = np.random.default_rng(0)
        started = time.perf_counter()
        self.peak = "int8"
        if "int4" in isa.peaks and isinstance(config, IntMatmul | TwoLevelMatmul):
            self.peak = "int4" if config.bits < 8 else "int8"
        if isinstance(config, IntMatmul):
            function = int_matmul(config, isa)
        elif isinstance(config, TwoLevelMatmul):
            function = two_level_matmul(config, isa)
        elif isinstance(config, SparseMatmul):
            function = sparse_matmul(config, isa)
        else:
            function = float_matmul(config, isa)
            self.peak = "bf16" if config.weight_dtype == "bfloat16" and isa.bf16 else "fp32"
        library = compiled_kernels({config.name: function}, isa)
        self.compile_s = time.perf_counter() - started
        self.function = library.get_function(config.name)
        first = self._weights()
        self.bytes = sum(w.nbytes for w in first)
        copies = -(-beyond_caches() // self.bytes)
        sets = [first, *(self._weights(first) for _ in range(copies))]
        self.weights = [[in_huge_pages(values) for values in weights] for weights in sets]
        self.next = 0

    def _weights(self, first: list[npt.NDArray[Any]] | None = None) -> list[npt.NDArray[Any]]:
        """Random operands; sparse ones are those of the first set, which takes long to pack."""
        if not isinstance(self.config, SparseMatmul):
            return [self._values(*operand) for operand in self.config.weights.values()]
        if first is not None:
            return first
        n, k = self.config.n, self.config.k
        weight = self.rng.integers(1, 128, (n, k), np.int8)
        weight[self.rng.random((n, k), np.float32) < self.zeros] = 0
        packed = pack_sparse(weight)
        values = np.concatenate([packed.values, np.zeros(SLACK, np.uint8)])
        scales = (self._values(*self.config.dense.weights["ws"]),)
        return [packed.mask, starts(count_nonzeros(weight)), values, *scales]

    def _tensor(self, shape: tuple[int, ...], dtype: str) -> Any:
        return tvm.runtime.tensor(self._values(shape, dtype), tvm.cpu())

    def _values(self, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        if dtype.startswith("float"):
            return self.rng.standard_normal(shape, np.float32).astype(dtype)
        if dtype == "uint16":
            floats = self.rng.standard_normal(shape, np.float32)
            return (floats.view(np.uint32) >> 16).astype(np.uint16)
        return self.rng.integers(0, 16, shape, np.uint8).astype(dtype)

    def prepare(self, rows: int) -> Callable[[], float]:
        """A call with ``rows`` rows, each time on other weights; gives the seconds it took."""
        config = self.config
        if isinstance(config, IntConfig):
            kp = config.dense.k_padded if isinstance(config, SparseMatmul) else config.k_padded
            inputs = [
                self._tensor((rows, kp), "int8"),
                self._tensor((rows,), "float32"),
                self._tensor((rows, kp // 32), "int32"),
            ]
        else:
            inputs = [self._tensor((rows, config.k), "float32")]
        out = tvm.runtime.empty((rows, config.n), "float32", tvm.cpu())

        def call() -> float:
            self.next = (self.next + 1) % len(self.weights)
            weights = self.weights[self.next]
            started = self.clock()
            self.function(*inputs, *weights, out)
            return self.clock() - started

        return call


def in_huge_pages(values: npt.NDArray[Any]) -> Any:
    """Values in memory like that of an engine's weights."""
    memory = np.frombuffer(anonymous(values.nbytes), values.dtype)
    memory = memory[: values.size].reshape(values.shape)
    memory[...] = values
    return tvm_ffi.from_dlpack(memory)


def measure(
    n: int, k: int, isa: Isa, cpu_time: bool, only: list[str], rows: list[int], rounds: int
) -> dict[str, Any]:
    """All figures of one run as one JSON object."""
    threads = 1 if cpu_time else usable_threads()
    want_threads(threads)
    clock = time.thread_time if cpu_time else time.perf_counter
    meter = Meter(
        tvm_ffi, compiled_kernels(ceiling_kernels(isa), isa), isa, threads, beyond_caches(), clock
    )
    kernels = {
        name: Kernel(c, isa, clock)
        for name, c in formats(n, k, isa).items()
        if not only or name in only
    }
    calls = {(name, t): kernel.prepare(t) for name, kernel in kernels.items() for t in rows}
    times: dict[tuple[str, int], list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        meter.measure()
        for key, call in calls.items():
            times[key].append(call())
    best = {name: ceiling.best / 1e9 for name, ceiling in meter.ceilings().items()}
    results = []
    for (name, t), seconds in times.items():
        kernel = kernels[name]
        row: dict[str, Any] = {"format": name, "rows": t, "compile_s": kernel.compile_s}
        for label, second in (("median", statistics.median(seconds)), ("best", min(seconds))):
            read, gops = kernel.bytes / second / 1e9, 2e-9 * t * n * k / second
            peak = best.get(kernel.peak)
            roof = max(kernel.bytes / best["read"] / 1e9, 2e-9 * t * n * k / peak if peak else 0.0)
            row[label] = {"ms": second * 1e3, "gb_per_s": read, "gop_per_s": gops}
            row[label] |= {"bandwidth": read / best["read"], "peak": gops / peak if peak else None}
            row[label]["roof"] = roof / second
        if (DENSE, t) in times:
            ratios = (a / b for a, b in zip(seconds, times[DENSE, t], strict=True))
            row["of_int8"] = statistics.median(ratios)
        results.append(row)
    return {
        "isa": isa.name,
        "threads": threads,
        "n": n,
        "k": k,
        "ceilings": best,
        "results": results,
    }


def show(report: dict[str, Any]) -> None:
    """Print the report as a table; shares are of the measured ceilings."""
    ceilings = ", ".join(f"{name} {value:.1f}" for name, value in report["ceilings"].items())
    print(f"{report['isa']}, {report['threads']} threads, N={report['n']} K={report['k']}")
    print(f"ceilings (read GB/s, else Gop/s): {ceilings}")
    print(
        "format     rows  median ms  best ms    GB/s  of read    Gop/s  of peak  of roof  of int8"
    )
    for row in report["results"]:
        best = row["best"]
        peak = "      -" if best["peak"] is None else f"{best['peak']:7.2f}"
        ratio = f"{row['of_int8']:7.3f}" if "of_int8" in row else "      -"
        print(
            f"{row['format']:10} {row['rows']:4}  {row['median']['ms']:9.3f} {best['ms']:8.3f}"
            f" {best['gb_per_s']:7.1f} {best['bandwidth']:8.2f} {best['gop_per_s']:8.0f}  {peak}"
            f"  {best['roof']:7.2f}  {ratio}"
        )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=8192, help="output channels")
    parser.add_argument("--k", type=int, default=2048, help="input channels")
    parser.add_argument("--target", default="native", help="as of optc compile")
    parser.add_argument("--only", default="", help="formats, separated by commas")
    parser.add_argument("--rows", default=",".join(map(str, ROWS)), help="rows T, by commas")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cpu-time", action="store_true", help="one thread, processor time")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    report = measure(
        options.n,
        options.k,
        isa_of(parse_target(options.target)),
        options.cpu_time,
        [name for name in options.only.split(",") if name],
        [int(rows) for rows in options.rows.split(",")],
        options.rounds,
    )
    if options.json:
        print(json.dumps({"schema": 1, "warnings": [], **report}))
    else:
        show(report)


if __name__ == "__main__":
    main()
