"""The loops behind `optc.backends.tvm.measuring.ceilings`: reads and multiply-adds that do nothing
else.

Every engine carries them, so that a serving machine measures its ceilings without a compiler.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import prefetch
from optc.backends.tvm.kernels.matmul.amx import instructions as amx
from optc.backends.tvm.kernels.matmul.dot import add_pairs, dot_ops, multiply_bytes
from optc.backends.tvm.kernels.matmul.matmul_float import DOT_IR, DOT_NAME
from optc.backends.tvm.kernels.matmul.tiles import argument, building, fma, local, store
from optc.backends.tvm.measuring.ceilings import (
    CHUNKS,
    ITERATIONS,
    NOTHING,
    NOTHING_OPERANDS,
    READERS,
    SUMS,
    peak_name,
    reader_name,
)

#: int32 values that a read kernel takes at once, whatever the instruction set.
_READ_LANES = 16


def ceiling_kernels(isa: Isa) -> dict[str, Any]:
    """The PrimFuncs of all ceilings by name: readers, a peak for each type, the empty kernel."""
    functions = {reader_name(*reader): _read(*reader) for reader in READERS}
    functions |= {peak_name(kind): _peak(kind, isa) for kind in isa.peaks}
    if isa.amx:
        functions |= {peak_name(kind): _tile_peak(kind, isa) for kind in ("int8", "bf16")}
    return {**functions, NOTHING: _nothing()}


def _read(streams: int, vectors: int, ahead: int) -> Any:
    """XOR of a buffer: data int32 [n], out int32 [CHUNKS, 16].

    A chunk is read at ``streams`` places at once, ``vectors`` registers from each in turn, and
    fetched ``ahead`` registers before.
    """
    lanes, kind = _READ_LANES, f"int32x{_READ_LANES}"
    cells = [(s, v) for s in range(streams) for v in range(vectors)]
    with building(reader_name(streams, vectors, ahead)) as builder:
        size = tir.int32()
        data = argument("data", (size,), "int32")
        out = argument("out", (CHUNKS, lanes), "int32")
        words = tir.bind(size // (CHUNKS * streams))
        with tir.parallel(CHUNKS) as chunk:
            totals = local(len(cells) * lanes, "int32")
            for cell in range(len(cells)):
                store(totals, tir.broadcast(tir.int32(0), lanes), [cell * lanes], lanes)
            with tir.serial(words // (vectors * lanes)) as index:
                for cell, (s, v) in enumerate(cells):
                    place = (chunk * streams + s) * words + (index * vectors + v) * lanes
                    if ahead:
                        prefetch(data, place + ahead * lanes)
                    total = totals.vload([cell * lanes], kind)
                    total = tir.bitwise_xor(total, data.vload([place], kind))
                    store(totals, total, [cell * lanes], lanes)
            result = totals.vload([0], kind)
            for cell in range(1, len(cells)):
                result = tir.bitwise_xor(result, totals.vload([cell * lanes], kind))
            store(out, result, [chunk, 0], lanes)
    return builder.get()


def _peak(kind: str, isa: Isa) -> Any:
    """A loop of one multiply-add on registers: operands uint8 [2, 4 * lanes], out [tasks, …]."""
    lanes = isa.lanes
    dtype = "int32" if kind.startswith("int") else "float32"
    places = range(0, SUMS * lanes, lanes)
    imported: AbstractContextManager[Any] = nullcontext()
    with building(peak_name(kind)) as builder:
        tasks = tir.int32()
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
                    store(totals, _multiply_add(kind, isa, data, total), [at], lanes)
            for at in places:
                store(out, totals.vload([at], f"{dtype}x{lanes}"), [task, at], lanes)
    return builder.get()


def _tile_peak(kind: str, isa: Isa) -> Any:
    """A loop of products of tiles: operands as of `_peak`, out int32 or float32 [tasks, ...]."""
    sums, rows, weights = range(4), 4, 5
    dot, dtype = (amx.dot_bytes, "int32") if kind == "int8" else (amx.dot_bfloat16, "float32")
    with building(peak_name(kind)) as builder:
        tasks = tir.int32()
        data = argument("data", (2, 4 * isa.lanes), "uint8")
        out = argument("out", (tasks, SUMS * isa.lanes), dtype)
        with tir.parallel(tasks) as task:
            config = local(amx.CONFIG_BYTES, "uint8")
            amx.start_config(config)
            amx.configure(config, {tile: amx.Shape() for tile in (*sums, rows, weights)})
            for operand, tile in enumerate((rows, weights)):
                amx.load(tile, tir.address_of(data[operand, 0]), 0)
            for tile in sums:
                amx.zero(tile)
            with tir.serial(ITERATIONS // len(sums)):
                for tile in sums:
                    dot(tile, rows, weights)
            for tile in sums:  # one row of each, over the other
                amx.store(tile, tir.address_of(out[task, 0]), 0)
            amx.release()
    return builder.get()


def _multiply_add(kind: str, isa: Isa, data: Any, total: Any) -> Any:
    """One step of a sum; its operands stay in registers."""
    lanes = isa.lanes
    loads = [data.vload([i, 0], f"uint8x{4 * lanes}") for i in (0, 1)]
    if kind.startswith("int"):
        # without such dots a product of constants would be moved out of the loop, so the sum is one
        signed = loads[1] if isa.dots else total
        signed = tir.reinterpret(signed, dtype=f"int8x{4 * lanes}")
        if isa.dots:
            ops = dot_ops(isa)
            return ops.dot(total, ops.prepare(loads[0]), signed)
        if kind == "int8":
            return add_pairs(total, loads[0], signed, lanes)
        words = tir.reinterpret(total, dtype=f"int16x{2 * lanes}")
        words = words + multiply_bytes(loads[0], signed, lanes)
        return tir.reinterpret(words, dtype=f"int32x{lanes}")
    if kind == "fp32":
        a, b = (tir.reinterpret(load, dtype=f"float32x{lanes}") for load in loads)
        return fma(a, b, total, lanes)
    words = [tir.reinterpret(load, dtype=f"uint32x{lanes}") for load in loads]
    return tir.call_pure_extern(f"float32x{lanes}", DOT_NAME, total, *words)


def _nothing() -> Any:
    """A call with as many operands as kernels have; its time is what calling costs."""
    with building(NOTHING) as builder:
        for index in range(NOTHING_OPERANDS):
            argument(f"x{index}", (1,), "float32")
        tir.evaluate(tir.int32(0))
    return builder.get()
