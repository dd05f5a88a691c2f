"""Measure attention and the KV writes next to what the machine can do, in one interleaved run.

    python -m benchmarks.micro.attention [--shape 9,3,64] [--kv float32,bfloat16,int8,int4,int4+32]
        [--query-bits 8] [--json FILE]

For each KV type (int4+32: int4 with the latest 32 tokens in int8) and step (``decode B x context``,
``verify B x rows`` of 512 tokens, or ``prefill rows``): time of one layer's call, GB/s of KV,
Gop/s, and the share of its roof: the longer of its KV bytes at the read bandwidth and its
operations at the peak of the type's instruction. Calls go over many pools in turn, more than caches
hold, as the layers of a step do, in huge pages like those of an engine. The best round of each
counts: other programs only ever slow one down.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from optc.backends.tvm.compiling.compiled_kernels import compiled_kernels
from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.kernels.attention.paged_attention import PagedAttention, paged_attention
from optc.backends.tvm.kernels.kv.rotary_kv import RotaryKV, rotary_kv
from optc.backends.tvm.kv_layout import POOL_TYPES, pool_shapes
from optc.backends.tvm.loaded.huge_pages import HUGE_PAGE, anonymous
from optc.backends.tvm.loaded.thread_pool import want_threads
from optc.backends.tvm.measuring.ceilings import Meter
from optc.backends.tvm.measuring.ceilings_kernels import ceiling_kernels
from optc.passes.kv_cache.layer_pools import recent_layer
from optc.runtime.executable.executable import LayerKV
from optc.system.hardware.cpu_caches import beyond_caches
from optc.system.hardware.target import parse_target, usable_threads

BLOCK_SIZE = 32
#: The instruction that multiplies, by KV type.
PEAKS = {"float32": "fp32", "bfloat16": "bf16", "int8": "int8", "int4": "int8"}


@dataclass(frozen=True)
class Step:
    """``sequences`` of ``context`` tokens each, the last ``rows`` of which are new."""

    sequences: int
    rows: int
    context: int

    @property
    def name(self) -> str:
        """For tables."""
        if self.rows == 1:
            return f"decode {self.sequences} x {self.context}"
        if self.rows < self.context:
            return f"verify {self.sequences} x {self.rows}"
        return f"prefill {self.sequences} x {self.rows}"


STEPS = (
    Step(1, 1, 512),
    Step(8, 1, 512),
    Step(16, 1, 512),
    Step(1, 1, 4096),
    Step(16, 1, 4096),
    Step(16, 4, 512),
    Step(1, 512, 512),
    Step(1, 2048, 2048),
)


def tensor(array: Any) -> Any:
    """An aligned copy."""
    return tvm.runtime.tensor(np.ascontiguousarray(array), tvm.cpu())


def pools_of(shapes: Sequence[tuple[int, ...]], fill: Any, copies: int) -> list[list[Any]]:
    """So many pools of each shape, one behind the other in huge pages."""
    sizes = [int(np.prod(shape)) * fill.nbytes for shape in shapes]
    memory = np.frombuffer(anonymous(copies * sum(sizes) + HUGE_PAGE), np.uint8)
    start = -memory.ctypes.data % HUGE_PAGE
    pools = []
    for _ in range(copies):
        arrays = []
        for shape, size in zip(shapes, sizes, strict=True):
            arrays.append(memory[start : start + size].view(fill.dtype).reshape(shape))
            arrays[-1][...] = fill
            start += size
        pools.append([tvm_ffi.from_dlpack(array) for array in arrays])
    return pools


class Layers:
    """Enough pools of one layer's shape that caches do not help, and calls on them in turn."""

    def __init__(
        self, heads: int, layer: LayerKV, step: Step, compiled: Any, recent: int = 0
    ) -> None:
        self.step, self.layer, self.heads = step, layer, heads
        blocks = -(-step.context // BLOCK_SIZE)
        tiles = step.sequences * blocks * BLOCK_SIZE // 16
        shapes = [*pool_shapes(tiles, layer)]
        self.kv_bytes = step.sequences * step.context * layer.bytes_per_token
        if recent:
            latest = recent_layer(layer, 1)
            shapes += pool_shapes(tiles, latest)
            seen = min(step.context, recent + step.rows - 1)
            self.kv_bytes += step.sequences * seen * latest.bytes_per_token
        groups = 2 if recent else 1
        element = np.dtype(POOL_TYPES[layer.dtype].element)
        # Small numbers in every type.
        fill = np.frombuffer(b"\x3c" * element.itemsize, element)[0]
        copies = max(2, -(-beyond_caches() // self.kv_bytes))
        self.pools = pools_of(shapes, fill, min(copies, 64))
        table = np.arange(step.sequences * blocks, dtype=np.int32)
        rows = step.sequences * step.rows
        new = np.arange(step.context - step.rows, step.context)
        slots = np.arange(step.sequences)[:, None] * blocks * BLOCK_SIZE + new
        width = (heads + layer.kv_heads) * layer.key_dim + layer.kv_heads * layer.value_dim
        rng = np.random.default_rng(0)
        half = np.ones((rows, layer.key_dim // 2), np.float32)
        self.where = [
            tensor(np.arange(step.sequences + 1, dtype=np.int32) * step.rows),
            tensor(np.full((groups, step.sequences), step.context, np.int32)),
            tensor(np.tile(table.reshape(1, step.sequences, blocks), (groups, 1, 1))),
            tensor(np.array([BLOCK_SIZE], np.int32)),
        ]
        self.q = tensor(rng.standard_normal((rows, heads * layer.key_dim), np.float32))
        self.out = tensor(np.zeros((rows, heads * layer.value_dim), np.float32))
        self.before = [
            tensor(rng.standard_normal((rows, width), np.float32)),
            tensor(half),
            tensor(half),
            tensor(np.tile(slots.reshape(1, -1), (groups, 1)).astype(np.int32)),
        ]
        self.attend = compiled.get_function("attention")
        self.write_kv = compiled.get_function("write")

    def attention(self, index: int) -> None:
        """Attention over one of the pools."""
        pools = self.pools[index % len(self.pools)]
        self.attend(self.q, *pools, *self.where, self.out)

    def write(self, index: int) -> None:
        """Rotary embedding and the write into one of the pools."""
        pools = self.pools[index % len(self.pools)]
        self.write_kv(*self.before, *pools, self.q)

    def pairs(self) -> float:
        """Pairs of a row and a token that it sees."""
        first = self.step.context - self.step.rows + 1
        return self.step.sequences * self.step.rows * (first + self.step.context) / 2


def measure(
    shape: tuple[int, int, int], types: list[str], query_bits: int, rounds: int, isa: Isa
) -> dict[str, Any]:
    """All figures of one run as one JSON object; ``query_bits`` are those over int8 pools."""
    heads, kv_heads, dim = shape
    threads = usable_threads()
    want_threads(threads)
    meter = Meter(
        tvm_ffi, compiled_kernels(ceiling_kernels(isa), isa), isa, threads, beyond_caches()
    )
    results: list[dict[str, Any]] = []
    for name in types:
        dtype, _, latest = name.partition("+")
        recent = int(latest or 0)
        bits = query_bits if dtype in ("int8", "int4") else 0
        groups = 2 if recent else 1
        config = PagedAttention(
            *(heads, kv_heads, dim, dim, dim**-0.5),
            kv_dtype=dtype,
            query_bits=bits,
            recent=recent,
            recent_group=groups - 1,
            groups=groups,
        )
        rotary = RotaryKV(
            *(heads, kv_heads, dim, dim, dim),
            kv_dtype=dtype,
            recent_group=1 if recent else -1,
            groups=groups,
        )
        kernels = {"attention": paged_attention(config, isa), "write": rotary_kv(rotary, isa)}
        compiled = compiled_kernels(kernels, isa)
        for step in STEPS:
            layer = LayerKV(0, kv_heads, dim, dim, dtype)
            layers = Layers(heads, layer, step, compiled, recent)
            best = {"attention": float("inf"), "write": float("inf")}
            for index in range(max(3, rounds * 512 // max(512, step.rows * step.sequences))):
                for call in best:
                    started = time.perf_counter()
                    getattr(layers, call)(index)
                    best[call] = min(best[call], time.perf_counter() - started)
            meter.measure()
            ops = 4.0 * heads * dim * layers.pairs()
            results.append(
                {
                    "kv": name,
                    "query_bits": bits,
                    "step": step.name,
                    "us": best["attention"] * 1e6,
                    "write_us": best["write"] * 1e6,
                    "kv_bytes": layers.kv_bytes,
                    "ops": ops,
                    "gb_per_s": layers.kv_bytes / best["attention"] / 1e9,
                    "gop_per_s": ops / best["attention"] / 1e9,
                }
            )
    ceilings = {name: ceiling.best / 1e9 for name, ceiling in meter.ceilings().items()}
    for row in results:
        peak = ceilings.get(PEAKS[row["kv"].partition("+")[0]], ceilings["fp32"])
        memory, compute = row["kv_bytes"] / ceilings["read"], row["ops"] / peak
        row["of_roof"] = max(memory, compute) / 1e3 / row["us"]
    return {"isa": isa.name, "threads": threads, "shape": shape, "ceilings": ceilings} | {
        "results": results
    }


def show(report: dict[str, Any]) -> None:
    """Print the report as a table."""
    ceilings = ", ".join(f"{name} {value:.1f}" for name, value in report["ceilings"].items())
    print(f"{report['isa']}, {report['threads']} threads, H,Hkv,D = {report['shape']}")
    print(f"ceilings (read GB/s, else Gop/s): {ceilings}")
    print("kv        step               attention us    GB/s   Gop/s  of roof   write us")
    for row in report["results"]:
        print(
            f"{row['kv']:9} {row['step']:18} {row['us']:12.1f} {row['gb_per_s']:7.1f}"
            f" {row['gop_per_s']:7.0f} {row['of_roof']:8.2f} {row['write_us']:10.1f}"
        )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks.micro.attention", description=__doc__)
    parser.add_argument("--shape", default="9,3,64", help="heads, KV heads, dimension")
    parser.add_argument("--kv", default=",".join(POOL_TYPES), help="KV types, by commas")
    parser.add_argument("--query-bits", type=int, default=8, help="over int8 pools: 8, or 0 (15)")
    parser.add_argument("--target", default="native", help="as of optc compile")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    heads, kv_heads, dim = (int(n) for n in options.shape.split(","))
    isa = isa_of(parse_target(options.target))
    types, bits = options.kv.split(","), options.query_bits
    report = measure((heads, kv_heads, dim), types, bits, options.rounds, isa)
    show(report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
