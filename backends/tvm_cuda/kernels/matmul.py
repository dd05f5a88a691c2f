"""Matmuls: a kernel for few rows, limited by reading the weights, and one for many, on tiles.

Both add up a row in the same order, so that which one runs is a matter of speed alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl.script import Expr, kernel
from optc.backends.tvm.kernels.matmul.matmul_float import FloatMatmul
from optc.backends.tvm.kernels.matmul.matmul_int import SUM_WIDTH, IntMatmul
from optc.backends.tvm_cuda.kernels.launch import launch, template

#: Rows and columns of a block of threads, and threads, as in the device code.
_FEW_ROWS, _FEW_COLUMNS, _FEW_THREADS = 16, 32, 256
_MANY_ROWS, _COLUMNS, _MANY_THREADS = 64, 64, 128


def int_matmul(config: IntMatmul) -> tvm.tirx.PrimFunc:
    """q i8 [T,Kp], s f32 [T], qsum i32 [T,Kp/32], the packed weight -> out f32 [T,N]; scales of
    groups are bits of float16."""
    k = config.k_padded
    with kernel(config.name) as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, k), "int8")
        xs = builder.argument("xs", (rows,))
        xsum = builder.argument("xsum", (rows, k // SUM_WIDTH), "int32")
        shapes = config.weights
        weights = {
            name: builder.argument(name, shape, "uint16" if dtype == "float16" else dtype)
            for name, (shape, dtype) in shapes.items()
        }
        out = builder.argument("out", (rows, config.n))
        zeros, bias = weights.get("wz", weights["w"]), weights.get("bias", xs)
        kind = template(
            "IntMatmul",
            config.n,
            config.k,
            config.bits,
            config.group_size,
            config.asymmetric,
            config.bias,
        )
        how = "groups" if config.group_size else "channels"
        operands = (x, xs, xsum, weights["w"], weights["ws"], zeros, bias, out)
        few, many = (template(f"int_matmul_{rows}_{how}", kind) for rows in ("few", "many"))
        _few_or_many(few, many, rows, config.blocks, operands)
    return builder.finish()


def float_matmul(config: FloatMatmul) -> tvm.tirx.PrimFunc:
    """x f32 [T,K], the packed weight -> out f32 [T,N]; bfloat16 weights on the tensor cores."""
    with kernel(config.name) as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, config.k))
        weights = {
            name: builder.argument(name, shape, dtype)
            for name, (shape, dtype) in config.weights.items()
        }
        out = builder.argument("out", (rows, config.n))
        operands = (x, weights["w"], weights.get("bias", x), out)
        if config.weight_dtype == "float32":
            kind = template("Float32Matmul", config.n, config.k, config.bias)
            _few(template("float32_matmul", kind), rows, config.blocks, operands)
        else:
            kind = template("Bf16Matmul", config.n, config.k, config.bias)
            few, many = (template(f"bf16_matmul_{rows}", kind) for rows in ("few", "many"))
            _few_or_many(few, many, rows, config.blocks, operands)
    return builder.finish()


def _few_or_many(few: str, many: str, rows: Expr, blocks: int, operands: Sequence[Expr]) -> None:
    with tir.If(rows <= _FEW_ROWS):
        with tir.Then():
            _few(few, rows, blocks, operands)
        with tir.Else():
            grid = (blocks, (rows + _MANY_ROWS - 1) // _MANY_ROWS)
            launch(many, grid, _MANY_THREADS, operands, rows)


def _few(function: str, rows: Expr, blocks: int, operands: Sequence[Expr]) -> None:
    grid = (blocks * (_COLUMNS // _FEW_COLUMNS), (rows + _FEW_ROWS - 1) // _FEW_ROWS)
    launch(function, grid, _FEW_THREADS, operands, rows)
