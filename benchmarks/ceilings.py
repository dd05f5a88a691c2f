"""What this machine can do: read bandwidth and peaks, measured by loops that do nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle
from typing import Any

import numpy as np
import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.matmul_dot import VnniDot
from optc.backends.tvm.kernels.matmul_float import DOT_IR, DOT_NAME
from optc.backends.tvm.kernels.matmul_tiles import argument, building, fma, local, store

#: Bytes that a read kernel goes over; short enough to find a quiet moment on a shared machine.
READ_BYTES = 32 << 20
#: Buffers that take turns, so that together they are several times any cache.
READ_BUFFERS = 8
#: Parallel chunks of a read kernel.
CHUNKS = 64
#: Independent sums of a compute loop: more than latency times throughput of any core.
SUMS = 12
#: Iterations of a compute loop.
ITERATIONS = 1 << 18
#: Read kernels: how many places of a chunk at once, how many registers from each.
READERS = ((1, 4), (1, 8), (2, 4), (4, 2))


def _read(streams: int, vectors: int) -> Any:
    """XOR of a buffer: data int32 [READ_BYTES / 4], out int32 [CHUNKS, 16]."""
    lanes = 16
    words = READ_BYTES // 4 // CHUNKS // streams
    kind = f"int32x{lanes}"
    with building(f"read_{streams}_{vectors}") as builder:
        data = argument("data", (READ_BYTES // 4,), "int32")
        out = argument("out", (CHUNKS, lanes), "int32")
        with tir.parallel(CHUNKS) as chunk:
            totals = local(streams * vectors * lanes, "int32")
            cells = [(s, v) for s in range(streams) for v in range(vectors)]
            for cell in range(len(cells)):
                store(totals, tir.broadcast(tir.int32(0), lanes), [cell * lanes], lanes)
            with tir.serial(words // (vectors * lanes)) as index:
                for cell, (s, v) in enumerate(cells):
                    place = (chunk * streams + s) * words + (index * vectors + v) * lanes
                    total = totals.vload([cell * lanes], kind)
                    total = tir.bitwise_xor(total, data.vload([place], kind))
                    store(totals, total, [cell * lanes], lanes)
            result = totals.vload([0], kind)
            for cell in range(1, len(cells)):
                result = tir.bitwise_xor(result, totals.vload([cell * lanes], kind))
            store(out, result, [chunk, 0], lanes)
    return builder.get()


def _step(kind: str, lanes: int, data: Any, total: Any) -> Any:
    """One multiply-add instruction on constant operands."""
    loads = [data.vload([i, 0], f"uint8x{4 * lanes}") for i in (0, 1)]
    if kind == "int8":
        signed = tir.reinterpret(loads[1], dtype=f"int8x{4 * lanes}")
        return VnniDot(lanes).dot(total, (loads[0],), signed)
    if kind == "fp32":
        floats = [tir.reinterpret(load, dtype=f"float32x{lanes}") for load in loads]
        return fma(*floats, total, lanes)
    words = [tir.reinterpret(load, dtype=f"uint32x{lanes}") for load in loads]
    return tir.call_pure_extern(f"float32x{lanes}", DOT_NAME, total, *words)


def _compute(kind: str, isa: Isa, tasks: int) -> Any:
    """A loop of one instruction, ``int8``, ``bf16`` or ``fp32``, on registers."""
    lanes = isa.lanes
    dtype = "int32" if kind == "int8" else "float32"
    places = range(0, SUMS * lanes, lanes)
    imported: AbstractContextManager[Any] = nullcontext()
    with building(f"peak_{kind}") as builder:
        data = argument("data", (2, 4 * lanes), "uint8")
        out = argument("out", (tasks, SUMS * lanes), dtype)
        if kind == "bf16":
            imported = tir.attr(0, "pragma_import_llvm", DOT_IR)
        with imported, tir.parallel(tasks) as task:
            totals = local(SUMS * lanes, dtype)
            for at in places:
                store(totals, tir.broadcast(tir.Cast(dtype, 0), lanes), [at], lanes)
            with tir.serial(ITERATIONS):
                for at in places:
                    total = totals.vload([at], f"{dtype}x{lanes}")
                    store(totals, _step(kind, lanes, data, total), [at], lanes)
            for at in places:
                store(out, totals.vload([at], f"{dtype}x{lanes}"), [task, at], lanes)
    return builder.get()


class Ceilings:
    """The read kernels and compute loops, compiled; `measure` runs each once and keeps the best.

    Attributes:
        best: By name, the best so far: ``read`` in GB/s; ``int8``, ``bf16`` and ``fp32`` in Gop/s,
            where the instruction set has them.
    """

    def __init__(self, isa: Isa, threads: int, clock: Callable[[], float]) -> None:
        self.clock = clock
        products = (
            {"fp32": 1} | ({"int8": 4} if isa.vnni else {}) | ({"bf16": 2} if isa.bf16 else {})
        )
        functions = {f"read_{s}_{v}": _read(s, v) for s, v in READERS}
        functions |= {f"peak_{kind}": _compute(kind, isa, threads) for kind in products}
        library = tvm.compile(tvm.IRModule(functions), isa.tvm_target())
        self.readers = [library[f"read_{s}_{v}"] for s, v in READERS]
        self.loops = {kind: library[f"peak_{kind}"] for kind in products}
        per_sum = 2 * isa.lanes * ITERATIONS * threads * SUMS
        self.operations = {kind: count * per_sum for kind, count in products.items()}
        ones = np.ones(READ_BYTES // 4, np.int32)
        self.data = cycle([tvm.runtime.tensor(ones, tvm.cpu()) for _ in range(READ_BUFFERS)])
        self.chunks = tvm.runtime.empty((CHUNKS, 16), "int32", tvm.cpu())
        self.operands = tvm.runtime.tensor(np.ones((2, 4 * isa.lanes), np.uint8), tvm.cpu())
        self.sums = {
            kind: tvm.runtime.empty(
                (threads, SUMS * isa.lanes), "int32" if kind == "int8" else "float32", tvm.cpu()
            )
            for kind in products
        }
        self.best: dict[str, float] = {}

    def measure(self) -> None:
        """Run every ceiling once."""
        for reader in self.readers:
            data = next(self.data)
            started = self.clock()
            reader(data, self.chunks)
            self._keep("read", READ_BYTES, self.clock() - started)
        for kind, loop in self.loops.items():
            started = self.clock()
            loop(self.operands, self.sums[kind])
            self._keep(kind, self.operations[kind], self.clock() - started)

    def _keep(self, name: str, amount: int, seconds: float) -> None:
        self.best[name] = max(self.best.get(name, 0.0), amount / seconds / 1e9)
