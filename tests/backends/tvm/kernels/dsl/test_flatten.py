"""Kernels become flat as by TVM's pass, but for indices that stay as they were written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.compiling.emit import make_kernel
from optc.backends.tvm.kernels.dsl import pipeline
from optc.backends.tvm.kernels.dsl.flatten import flatten_buffers, flattened
from optc.backends.tvm.kernels.dsl.script import (
    Expr,
    bind,
    for_rows,
    kernel,
    scratch,
    store,
    workspace,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from tests.arm.kernels import only_here
from tests.backends.tvm.kernel_cases import TARGETS, isa_named  # two threads, by its environment

WIDTH = 40


def _doubled_through(memory: str) -> tirx.PrimFunc:
    """x f32 [2, T, 40] -> y f32 [T, 2, 40]: 2 x, through a buffer [2, 40] of each row."""
    with kernel("main") as builder:
        rows = builder.size()
        x = builder.argument("x", (2, rows, WIDTH))
        y = builder.argument("y", (rows, 2, WIDTH))

        def through(row: Expr, room: Expr) -> None:
            with tir.serial(0, 2) as i:
                for_vectors(
                    WIDTH,
                    lambda at, n: store_part(room, load_part(x, n, i, row, at), n, i, at),
                )
            with tir.serial(0, 2 * WIDTH) as at:
                value = room[at // WIDTH, at % WIDTH]
                store(y, value + value, row, at // WIDTH, at % WIDTH)

        def body(row: Expr) -> None:
            if memory == "scratch":
                through(row, scratch((2, WIDTH)))
            else:
                with workspace((2, WIDTH)) as room:
                    through(row, room)

        for_rows(rows, rows > 8, body)
    return builder.finish()


def _module(function: tirx.PrimFunc) -> tvm.IRModule:
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def _buffers(function: tirx.PrimFunc) -> list[Any]:
    """What the body declares, reads and writes."""
    found: list[Any] = []

    def of(name: str) -> Any:
        def seen(node: Any) -> Any:
            found.append(getattr(node, name))
            return node

        return seen

    tvm_ffi.structural_map(
        function.body,
        [
            (tvm.ir.TensorLoad, of("source")),
            ((tirx.BufferStore, tirx.AllocBuffer, tirx.DeclBuffer), of("buffer")),
        ],
    )
    return found


def _stored_at(function: tirx.PrimFunc) -> Any:
    """The index of the only store."""
    found: list[Any] = []

    def seen(node: Any) -> Any:
        found.append(node.indices[0])
        return node

    tvm_ffi.structural_map(function.body, (tirx.BufferStore, seen))
    (index,) = found
    return index


@pytest.mark.parametrize("memory", ["scratch", "workspace"])
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_numbers_are_those_of_the_kernel(memory: str, rows: int) -> None:
    only_here()
    module = _module(_doubled_through(memory))
    target = isa_named(TARGETS[1]).tvm_target()
    compiled = tvm.compile(module, target, tir_pipeline=pipeline.register())
    x = np.random.default_rng(0).standard_normal((2, rows, WIDTH), np.float32)
    guarded = np.full((rows + 1, 2, WIDTH), np.nan, np.float32)
    out = tvm.runtime.tensor(guarded)
    compiled["main"](tvm.runtime.tensor(x), out._create_view((rows, 2, WIDTH)))
    np.testing.assert_array_equal(out.numpy()[:rows], 2 * x.transpose(1, 0, 2))
    assert np.isnan(out.numpy()[rows:]).all()


@pytest.mark.parametrize("memory", ["scratch", "workspace"])
def test_every_buffer_is_flat_and_arguments_keep_their_shapes(memory: str) -> None:
    before = _doubled_through(memory)
    after = flattened(before)
    assert {len(buffer.ty.shape) for buffer in _buffers(before)} == {2, 3}
    assert {len(buffer.ty.shape) for buffer in _buffers(after)} == {1}
    assert [p.same_as(q) for p, q in zip(before.params, after.params, strict=True)] == [True, True]
    assert after.attrs["tirx.is_scheduled"]


def test_indices_are_not_mixed_with_loops() -> None:
    with kernel("main") as builder:
        first = builder.size()
        x = builder.argument("x", (first, 8))
        with tir.serial(first, 2 * first) as row:
            store(x, bind(x[row, 1]), row, 2)
    module, expected = _module(builder.finish()), row * 8 + 2
    ours, theirs = flatten_buffers(module), tirx.transform.FlattenBuffer()(module)
    assert tvm_ffi.structural_equal(_stored_at(ours["main"]), expected)
    assert not tvm_ffi.structural_equal(_stored_at(theirs["main"]), expected)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("rms_norm", {"width": 40, "epsilon": 1e-5}),
        ("quantize", {"width": 40}),
        ("float_matmul", {"n": 128, "k": 96}),
    ],
)
def test_kernels_are_those_that_tvm_makes(name: str, config: dict[str, Any]) -> None:
    module = _module(make_kernel(name, config, isa_named(TARGETS[1])))
    simplify = tirx.transform.StmtSimplify()
    expected = simplify(tirx.transform.FlattenBuffer()(module))
    tvm.ir.assert_structural_equal(simplify(flatten_buffers(module)), expected, map_free_vars=True)


def _negated() -> tirx.PrimFunc:
    """x bool [4, 8] -> y bool [4, 8]."""
    with kernel("main") as builder:
        x = builder.argument("x", (4, 8), "bool")
        y = builder.argument("y", (4, 8), "bool")
        with tir.serial(0, 4) as i, tir.serial(0, 8) as j:
            store(y, tir.Not(x[i, j]), i, j)
    return builder.finish()


def test_other_functions_are_left_to_tvm() -> None:
    module = _module(_negated().without_attr("tirx.is_scheduled"))
    expected = tirx.transform.FlattenBuffer()(module)
    module["kernel"] = _doubled_through("scratch").with_attr("global_symbol", "kernel")
    after = flatten_buffers(module)
    tvm.ir.assert_structural_equal(after["main"], expected["main"])
    tvm.ir.assert_structural_equal(after["kernel"], flattened(module["kernel"]))


def test_kernels_hold_no_booleans() -> None:
    with pytest.raises(ValueError, match="kernels hold no booleans in buffers"):
        flattened(_negated())
