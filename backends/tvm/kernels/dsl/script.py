"""A thin layer over the TIR builder that the kernels are written with.

Vectors have 16 float32 lanes on every instruction set (LLVM splits them for AVX2), so that the same
operations in the same order give the same bits everywhere. LLVM may contract a product and a sum
into one rounding; a kernel therefore writes `fma` wherever a product feeds a sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as tir

#: An expression of TIR (tvm gives no types).
Expr = Any
#: DLPack's kind of device.
_CPU = 1
#: Float32 lanes of a vector, whatever the instruction set.
LANES = 16
#: Multiply-adds, or elements read, below which a parallel region costs more than it saves.
SERIAL_WORK = 1 << 15


class KernelBuilder:
    """Collects the body of one `PrimFunc`; use it through `kernel`."""

    def __init__(self, ir_builder: IRBuilder) -> None:
        self._ir_builder = ir_builder

    def size(self) -> Expr:
        """A dynamic int32 dimension."""
        return tir.int32()

    def argument(self, name: str, shape: Sequence[Expr | int], dtype: str = "float32") -> Expr:
        """The next buffer argument, C-contiguous, aligned to 64 bytes or at least to its type."""
        return tir.match_buffer(tir.arg(name, tir.handle()), tuple(shape), dtype)

    def finish(self) -> tvm.tirx.PrimFunc:
        """The function that was built."""
        return self._ir_builder.get()


@contextmanager
def kernel(name: str) -> Iterator[KernelBuilder]:
    """Open a function called ``name``; call ``finish`` of the builder after the block."""
    ir_builder = IRBuilder()
    builder = KernelBuilder(ir_builder)
    with ir_builder, tir.prim_func(s_tir=False):
        tir.func_name(name)
        tir.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        yield builder


@dataclass(frozen=True)
class Register:
    """A scalar or vector variable that lives in registers.

    Attributes:
        buffer: The local buffer behind it; LLVM turns it into a value.
        lanes: Number of lanes.
    """

    buffer: Expr
    lanes: int

    def get(self) -> Expr:
        """The current value."""
        return load(self.buffer, 0, lanes=self.lanes)

    def set(self, value: Expr) -> None:
        """Assign ``value``."""
        store(self.buffer, value, 0)


def register(value: Expr | float, dtype: str = "float32", lanes: int = LANES) -> Register:
    """A new register variable that starts as ``value`` (a scalar is broadcast)."""
    # Of global scope: a buffer of local scope becomes a call into the runtime's memory pool.
    variable = Register(tir.alloc_buffer((lanes,), dtype, scope="global"), lanes)
    is_number = isinstance(value, int | float)
    variable.set(splat(value, dtype, lanes) if is_number else value)
    return variable


def scratch(shape: Sequence[Expr | int], dtype: str = "float32") -> Expr:
    """Memory of this call; allocated where it is first needed, inside a loop once a thread."""
    return tir.alloc_buffer(tuple(shape), dtype)


@contextmanager
def workspace(shape: Sequence[Expr | int], dtype: str = "float32") -> Iterator[Expr]:
    """Memory whose size the kernel itself has computed; freed after the block.

    The compiler moves what `scratch` allocates to the start of the function, where such a size is
    not yet known.
    """
    buffer, pointer = take_workspace(shape, dtype)
    yield buffer
    free_workspace(pointer)


def take_workspace(shape: Sequence[Expr | int], dtype: str) -> tuple[Expr, Expr]:
    """Memory that is allocated here, and what `free_workspace` takes."""
    count = functools.reduce(lambda a, b: a * b, shape)
    bits = tvm.DataType(dtype).bits
    size = tir.cast(count, "uint64") * tir.uint64(bits // 8)
    kind = tvm.ir.PointerType(tvm.ir.PrimType(dtype))
    allocate = "tirx.TVMBackendAllocWorkspace"
    pointer = tir.bind(tir.call_intrin(kind, allocate, _CPU, 0, size, 2, bits), kind)
    return tir.decl_buffer(tuple(shape), dtype, data=pointer), pointer


def free_workspace(pointer: Expr) -> None:
    """Give memory back."""
    tir.evaluate(tir.TVMBackendFreeWorkspace(_CPU, 0, pointer))


def lanes_of(value: Expr) -> int:
    """Number of lanes of an expression."""
    return int(value.ty.dtype.lanes)


def load(buffer: Expr, *indices: Expr | int, lanes: int = LANES) -> Expr:
    """``lanes`` consecutive elements of the last axis, from ``indices`` on."""
    if lanes == 1:
        return buffer[indices]
    return buffer[(*indices[:-1], tir.ramp(indices[-1], 1, lanes))]


def store(buffer: Expr, value: Expr, *indices: Expr | int) -> None:
    """Store all lanes of ``value`` along the last axis, from ``indices`` on."""
    lanes = lanes_of(value)
    last = indices[-1] if lanes == 1 else tir.ramp(indices[-1], 1, lanes)
    tir.buffer_store(buffer, value, [*indices[:-1], last])


def splat(value: Expr | float, dtype: str = "float32", lanes: int = LANES) -> Expr:
    """A scalar in all lanes."""
    scalar = tvm.tirx.const(value, dtype) if isinstance(value, int | float) else value
    return scalar if lanes == 1 else tir.broadcast(scalar, lanes)


def wide(index: Expr | int) -> Expr:
    """An index as int64. Sums of such indices keep their constants in the addresses of the code;
    those of int32 are computed for each access, for they might overflow."""
    return tir.int64(index) if isinstance(index, int) else bind(tir.cast(index, "int64"))


def like(value: float, vector: Expr) -> Expr:
    """A float constant with as many lanes as ``vector``."""
    return splat(value, "float32", lanes_of(vector))


def bind(value: Expr) -> Expr:
    """Name ``value``, so that it is computed once however often it is used."""
    return tir.bind(value)


def hold(value: Expr) -> Expr:
    """As `bind`, for vectors of which another one is computed, and of that one the next.

    In a register: TVM's simplifier replaces names by what they stand for, so that a value that is
    used twice doubles all that follows from it. The code that LLVM makes is as fast.
    """
    if (lanes := lanes_of(value)) == 1:
        return bind(value)
    return register(value, str(value.ty.dtype).partition("x")[0], lanes).get()


def intrinsic(name: str, dtype: str, *arguments: Expr) -> Expr:
    """Call of the pure LLVM intrinsic ``name`` with result type ``dtype``."""
    return tir.call_llvm_pure_intrin(dtype, tir.llvm_lookup_intrinsic_id(name), *arguments)


def prefetch(buffer: Expr, *indices: Expr | int) -> None:
    """Fetch the cache line of one element into the second-level cache; never faults."""
    read, second_level, data = tir.int32(0), tir.int32(2), tir.int32(1)
    address = tir.address_of(buffer[indices])
    call = tir.call_llvm_intrin("void", "llvm.prefetch", address, read, second_level, data)
    tir.evaluate(call)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """``a * b + c`` rounded once."""
    return intrinsic("llvm.fma", str(a.ty.dtype), a, b, c)


def absolute(value: Expr) -> Expr:
    """Magnitude of each lane."""
    return intrinsic("llvm.fabs", str(value.ty.dtype), value)


def round_even(value: Expr) -> Expr:
    """Each lane rounded to the nearest integer, ties to even."""
    return intrinsic("llvm.nearbyint", str(value.ty.dtype), value)


def square_root(value: Expr) -> Expr:
    """Correctly rounded square root of each lane."""
    return intrinsic("llvm.sqrt", str(value.ty.dtype), value)


def tree(vector: Expr, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """Reduce the lanes of a vector in a fixed order: halves against halves."""
    lanes, dtype = lanes_of(vector), str(vector.ty.dtype).split("x")[0]
    current = bind(vector)
    while lanes > 2:
        lanes //= 2
        half = f"{dtype}x{lanes}"
        low, high = tir.vectorlow(half, current), tir.vectorhigh(half, current)
        current = bind(combine(low, high))
    return bind(combine(lane(current, 0), lane(current, 1)))


def lane(vector: Expr, index: int) -> Expr:
    """One lane of a vector."""
    return tvm.tirx.Shuffle([vector], [index])


def tree_sum(vector: Expr) -> Expr:
    """Sum of the lanes in a fixed order."""
    return tree(vector, lambda a, b: a + b)


def tree_max(vector: Expr) -> Expr:
    """Largest lane."""
    return tree(vector, tir.max)


def for_rows(rows: Expr, parallel: Expr, body: Callable[[Expr], None]) -> None:
    """Run ``body(row)`` for every row, on all threads if the condition ``parallel`` holds.

    Both forms run the same operations: the condition decides speed, never results.
    """
    with tir.If(parallel):
        with tir.Then(), tir.parallel(0, rows) as row:
            body(row)
        with tir.Else(), tir.serial(0, rows) as row:
            body(row)


def round_up(value: int, multiple: int) -> int:
    """The least multiple of ``multiple`` that is not below ``value``."""
    return -(-value // multiple) * multiple
