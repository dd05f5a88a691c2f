"""Matmuls: a kernel for few rows, limited by reading the weights, and one for many, on tiles.

Both add up a row in the same order, so that which one runs is a matter of speed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import Expr, KernelBuilder, kernel
from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul
from optc.backends.tvm.kernels.matmul.matmul_int import SUM_WIDTH, IntMatmul
from optc.backends.tvm_cuda.kernels.launch import launch, template
from optc.errors import UnsupportedError

#: Columns of a block of threads of the kernels for few rows, and threads.
_FEW_COLUMNS, _FEW_THREADS = 32, 256
#: Rows of such a block, in halves of a fragment: the least that holds a step's rows.
_HALF, _HALVES = 8, (1, 2, 4, 8)
#: Rows of a block of the kernel on the ordinary units.
_SCALAR_ROWS = 16
_COLUMNS, _MANY_THREADS = 64, 128
#: Rows of a block of the kernels for many rows, by fragments of a warp.
_TILE_ROWS, _SMALL, _LARGE = 32, 2, 4
#: Blocks from which larger ones pay: two for each multiprocessor of a large GPU. With 128 of them a
#: weight of 2048 columns took 101 us, where 256 smaller ones took 75 (H200, 512 rows).
_MANY_BLOCKS = 264


def int_matmul(config: IntMatmul) -> tvm.tirx.PrimFunc:
    """q i8 [T,Kp], s f32 [T], qsum i32 [T,Kp/32], the packed weight -> out f32 [T,N]; scales of
    groups are bits of float16."""
    k = config.k_padded
    with kernel(config.name) as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, k), "int8")
        xs = builder.argument("xs", (rows,))
        xsum = builder.argument("xsum", (rows, k // SUM_WIDTH), "int32")
        weights = int_weights(builder, config, xs)
        out = builder.argument("out", (rows, config.n))
        how = "groups" if config.group_size else "channels"
        operands = (x, xs, xsum, *weights, out)
        matmul = _Matmul("int_matmul", f"_{how}", int_kind(config), config.blocks, operands)
        matmul.launch(rows, large=not config.group_size)
    return builder.finish()


def int_weights(builder: KernelBuilder, config: IntMatmul, unread: Expr) -> tuple[Expr, ...]:
    """Values, scales (of groups the bits of float16), zero points and bias as the next arguments;
    ``unread`` stands for a bias that there is not.

    Raises:
        UnsupportedError: Zero points are float numbers.
    """
    if config.minimums:
        raise UnsupportedError(
            "float zero points have no CUDA kernel",
            where=config.name,
            hint="compile with --set quantize-weights.given=symmetric",
        )
    found = {
        name: builder.argument(name, shape, "uint16" if dtype == "float16" else dtype)
        for name, (shape, dtype) in config.weights.items()
    }
    return found["w"], found["ws"], found.get("wz", found["w"]), found.get("bias", unread)


def int_kind(config: IntMatmul) -> str:
    """The matmul as a type of the device code."""
    shape = (config.n, config.k, config.bits, config.group_size)
    return template("IntMatmul", *shape, config.asymmetric, config.bias)


def float_weights(builder: KernelBuilder, config: FloatMatmul, unread: Expr) -> tuple[Expr, Expr]:
    """Values and bias as the next arguments; see `int_weights`."""
    found = {
        name: builder.argument(name, shape, dtype)
        for name, (shape, dtype) in config.weights.items()
    }
    return found["w"], found.get("bias", unread)


def float_matmul(config: FloatMatmul) -> tvm.tirx.PrimFunc:
    """x f32 [T,K], the packed weight -> out f32 [T,N]; bfloat16 weights on the tensor cores."""
    with kernel(config.name) as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, config.k))
        weights = float_weights(builder, config, x)
        out = builder.argument("out", (rows, config.n))
        operands = (x, *weights, out)
        if config.weight_dtype == "float32":
            kind = template("Float32Matmul", config.n, config.k, config.bias)
            grid = (2 * config.blocks, -(-rows // _SCALAR_ROWS))
            launch(template("float32_matmul", kind), grid, _FEW_THREADS, operands, rows)
        else:
            kind = template("Bf16Matmul", config.n, config.k, config.bias)
            _Matmul("bf16_matmul", "", kind, config.blocks, operands).launch(rows, large=False)
    return builder.finish()


@dataclass(frozen=True)
class _Matmul:
    """A matmul on tensor cores.

    Attributes:
        name: Of its functions.
        how: What their names end with.
        kind: Its type in the device code.
        blocks: Of the packed weight, of 64 columns.
        operands: Passed to the functions.
    """

    name: str
    how: str
    kind: str
    blocks: int
    operands: Sequence[Expr]

    def launch(self, rows: Expr, *, large: bool) -> None:
        """Choose by the rows of the step; larger tiles of many rows only where ``large``."""
        self._few(rows, _HALVES, large)

    def _few(self, rows: Expr, halves: tuple[int, ...], large: bool) -> None:
        if not halves:
            self._many(rows, large)
            return
        with tir.If(rows <= _HALF * halves[0]):
            with tir.Then():
                function = template(f"{self.name}_few{self.how}", self.kind, halves[0])
                grid = (self.blocks * (_COLUMNS // _FEW_COLUMNS),)
                launch(function, grid, _FEW_THREADS, self.operands, rows, waits=True)
            with tir.Else():
                self._few(rows, halves[1:], large)

    def _many(self, rows: Expr, large: bool) -> None:
        if not large:
            self._tiles(rows, _SMALL)
            return
        enough = -(-_MANY_BLOCKS // self.blocks) - 1
        with tir.If(rows <= _TILE_ROWS * _LARGE * enough):
            with tir.Then():
                self._tiles(rows, _SMALL)
            with tir.Else():
                self._tiles(rows, _LARGE)

    def _tiles(self, rows: Expr, tiles: int) -> None:
        function = template(f"{self.name}_many{self.how}", self.kind, tiles)
        height = _TILE_ROWS * tiles
        grid = (self.blocks, (rows + height - 1) // height)
        launch(function, grid, _MANY_THREADS, self.operands, rows)
