"""Products and embeddings by weights in blocks: what they give, beside NumPy's own blocks."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from optc.passes.general.block_rounding import ZERO, nearest
from optc.passes.general.block_writer import BlockWriter, Layout, Weight, rows_of, weight_of
from tests.support.hadamard import rotation
from tests.support.ir_text import Array, f32
from tests.support.ragged import run


def model_of(shape: str, nodes: str, table: Array) -> ir.Model:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 23]>'
        f" g (float[{shape}] x, int64[B,T] ids) => (float y, float z) {{ {nodes} }}"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def blocks_of(rows: Array, layout: Layout) -> Array:
    """Rows as they are after rounding, rotated back."""
    size = layout.block_of(rows.shape[1])
    turn = rotation(rows.shape[1], size) if size else np.eye(rows.shape[1])
    turned = (rows.astype(np.float64) @ turn).astype(np.float32)
    found = nearest(turned, layout.group_size)
    back = (found.codes.astype(np.float64) - ZERO) * found.scales
    return back.reshape(rows.shape) @ turn.T


def test_a_block_is_the_largest_that_inputs_fill() -> None:
    for block, inputs in product((0, 15, 16, 63, 64, 128, 256), range(1, 520)):
        sizes = [size for size in (16, 64, 256) if size <= block and inputs % size == 0]
        assert Layout(16, block, 0).block_of(inputs) == max(sizes, default=0)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", ["B,{}", "B,2,{}", "B,1,2,{}"])
def test_products_are_those_of_the_blocks(turned: bool, shape: str) -> None:
    for inputs, group, block in ((32, 16, 0), (48, 16, 64), (64, 32, 32), (64, 16, 64)):
        table = f32(5, inputs, seed=inputs)
        sizes = shape.format(inputs)
        nodes = "t = Transpose <perm = [1, 0]> (table) y = MatMul (x, t)" if turned else ""
        nodes = nodes or "y = MatMul (x, table)"
        model = model_of(sizes, f"{nodes} z = Neg (y)", table if turned else table.T.copy())
        layout = Layout(group, block, 0)
        writer = BlockWriter(model.graph, layout, {})
        node = next(n for n in model.graph if n.op_type == "MatMul")
        weight = weight_of(node)
        assert weight is not None
        assert weight.turned == turned
        np.testing.assert_array_equal(rows_of(weight), table)
        stated = node.outputs[0].shape
        writer.rewrite(node, weight)
        assert model.graph.outputs[0].shape == stated
        x = f32(*(int(size) for size in sizes.replace("B", "3").split(",")), seed=9)
        (found, _) = run(model, {"x": x, "ids": np.zeros((1, 1), np.int64)})
        wanted = x.astype(np.float64) @ blocks_of(table, layout).T
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
        kept = [name for name in writer.shared if name is weight.value]
        assert bool(kept) == turned, "an embedding may read what has a row for each output"


@pytest.mark.parametrize(("group", "block"), [(16, 0), (32, 64), (16, 32)])
def test_lookups_read_the_products_table(group: int, block: int) -> None:
    table = f32(9, 64, seed=1)
    model = model_of(
        "B,2,64",
        "t = Transpose <perm = [1, 0]> (table) y = MatMul (x, t) z = Gather (table, ids)",
        table,
    )
    layout = Layout(group, block, 0)
    writer = BlockWriter(model.graph, layout, {})
    matmul, gather = (
        next(n for n in model.graph if n.op_type == kind) for kind in ("MatMul", "Gather")
    )
    weight = weight_of(matmul)
    assert weight is not None
    writer.rewrite(matmul, weight)
    before = set(model.graph.initializers)
    writer.look_up(gather)
    new = set(model.graph.initializers) - before
    assert not any(name.endswith(("codes", "scales")) for name in new), "one table"
    ids = np.array([[0, 8, 3], [1, 1, 2]])
    (_, found) = run(model, {"x": f32(3, 2, 64), "ids": ids})
    np.testing.assert_allclose(found, blocks_of(table, layout)[ids], rtol=1e-3, atol=1e-4)


def test_products_of_one_input_rotate_it_once() -> None:
    model = model_of("B,64", "y = MatMul (x, table) z = MatMul (x, table)", f32(64, 5, seed=1))
    writer = BlockWriter(model.graph, Layout(16, 64, 0), {})
    for node in list(model.graph):
        weight = weight_of(node)
        assert weight is not None
        writer.rewrite(node, weight)
    assert [str(n.name) for n in model.graph if str(n.name).endswith("rotate")] == ["y.rotate"]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rescored", [1, 3, 2000])
def test_so_many_of_the_largest_are_rescored(turned: bool, rescored: int) -> None:
    """More than 16 outputs for each input; no more than there are."""
    for outputs in (16 * 16, 16 * 16 + 1):
        table = f32(outputs, 16, seed=2).astype(np.float16).astype(np.float32)
        nodes = "t = Transpose <perm = [1, 0]> (table) y = MatMul (x, t) z = Gather (table, ids)"
        nodes = nodes if turned else "y = MatMul (x, table) z = Neg (y)"
        model = model_of("B,2,16", nodes, table if turned else table.T.copy())
        layout = Layout(16, 0, rescored)
        writer = BlockWriter(model.graph, layout, {})
        node = next(n for n in model.graph if n.op_type == "MatMul")
        weight = weight_of(node)
        assert weight is not None
        writer.rewrite(node, weight)
        many = outputs > 16 * 16
        assert bool(writer.halves) == (many and turned)
        ids = np.array([[0, 5]])
        if writer.halves:
            writer.look_up_half(next(n for n in model.graph if n.outputs[0].name == "z"))
        x = f32(3, 2, 16)
        found, rows = run(model, {"x": x, "ids": ids})
        rounded = x.astype(np.float64) @ blocks_of(table, layout).T
        exact = x.astype(np.float64) @ table.T
        right = np.isclose(found, exact, rtol=1e-5, atol=1e-5)
        coarse = np.isclose(found, rounded, rtol=1e-3, atol=1e-4)
        assert (right | coarse).all()
        count = min(rescored, outputs) if many else 0
        order = np.argsort(-rounded, axis=-1)
        again = np.take_along_axis(right, order[..., :count], axis=-1)
        assert again.all()
        rest = np.take_along_axis(right, order[..., count:], axis=-1)
        assert rest.mean() < 0.1 if rest.size else count == outputs
        if writer.halves:
            np.testing.assert_array_equal(rows, table[ids])


@pytest.mark.parametrize(
    ("nodes", "array", "turned"),
    [
        ("y = MatMul (x, table) z = Neg (y)", f32(8, 4), False),
        ("t = Transpose <perm = [1, 0]> (table) y = MatMul (x, t) z = Neg (y)", f32(4, 8), True),
        ("y = MatMul (x, x) z = Gather (table, ids)", f32(8, 4), None),
        ("t = Neg (table) y = MatMul (x, t) z = Neg (y)", f32(8, 4), None),
        ("y = MatMul (x, table) z = Neg (y)", f32(2, 8, 4), None),
        ("y = MatMul (x, table) z = Neg (y)", f32(8), None),
        ("h = Cast <to = 10> (x) y = MatMul (h, table) z = Neg (y)", "half", None),
    ],
)
def test_weights_are_float_matrices_or_their_transposes(
    nodes: str, array: Any, turned: bool | None
) -> None:
    table = f32(8, 4).astype(np.float16) if isinstance(array, str) else array
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 23]> g (float[8,8] x, int64[B,T] ids)'
        f" => (float y, float z) {{ {nodes} }}"
    )
    for node in model.graph:
        for value in node.inputs:
            if value is not None and value.name == "table":
                value.const_value = ir.tensor(table, name="table")
    node = next(n for n in model.graph if n.op_type == "MatMul")
    found = weight_of(node)
    assert (found is None) == (turned is None)
    if found is not None:
        assert found == Weight(found.value, bool(turned))
        assert rows_of(found).shape == (4, 8)
