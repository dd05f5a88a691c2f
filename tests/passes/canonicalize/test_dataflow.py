"""Reading a graph backwards, and rewriting it in place."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize import dataflow
from tests.support.ir_text import expected, f32, model_of, nodes_text

SIGNATURE = "g (float[B,S,8] x, float[B,S,8] z) => (float[B,S,N] y)"


def node_of(text: str, **weights: np.ndarray) -> ir.Node:
    """The last node of a graph over ``x`` and ``z``."""
    model = model_of(SIGNATURE, text, weights)
    return list(model.graph)[-1]


def value_of(text: str, **weights: np.ndarray) -> ir.Value:
    return node_of(text, **weights).outputs[0]


def test_a_scalar_is_a_constant_of_one_element() -> None:
    node = node_of("y = Mul (x, c)", c=np.array([[2.5]], np.float32))
    assert dataflow.scalar(node.inputs[1]) == 2.5
    assert dataflow.scalar(node.inputs[0]) is None
    assert dataflow.scalar(None) is None
    assert dataflow.scalar(node_of("y = Mul (x, c)", c=f32(8)).inputs[1]) is None


def test_the_producer_is_asked_by_its_operators_and_domain() -> None:
    node = node_of("y = Mul (x, z)")
    y = node.outputs[0]
    assert dataflow.producer(y, "Add", "Mul") is node
    assert dataflow.producer(y, "Add") is None
    assert dataflow.producer(y, "Mul", domain="optc") is None
    assert dataflow.producer(node.inputs[0], "Mul") is None
    assert dataflow.producer(None, "Mul") is None


def test_operands_in_both_orders_and_none_that_is_absent() -> None:
    node = node_of("y = Clip (x, , z)")
    with pytest.raises(ValueError, match="input 1 is absent"):
        dataflow.operand(node, 1)
    product = node_of("y = Mul (x, z)")
    names = [(a.name, b.name) for a, b in dataflow.orders(product)]
    assert names == [("x", "z"), ("z", "x")]


def test_shapes_are_equal_where_every_dimension_is_known() -> None:
    node = node_of("y = Mul (x, z)")
    x, z = (dataflow.operand(node, index) for index in (0, 1))
    assert dataflow.dims(x) == ["B", "S", 8]
    assert (dataflow.rank(x), dataflow.rank(None)) == (3, None)
    assert dataflow.same_shape(x, z)
    z.shape = ir.Shape(["B", "T", 8])
    assert not dataflow.same_shape(x, z)
    x.shape = z.shape = ir.Shape(["B", None, 8])
    assert not dataflow.same_shape(x, z), "what has no name may be anything"
    x.shape = None
    assert dataflow.dims(x) == []
    assert not dataflow.same_shape(x, x)


@pytest.mark.parametrize(("text", "axis"), [(": int = -1", 2), (": int = 1", 1), (None, 0)])
def test_an_axis_is_counted_from_the_front(text: str | None, axis: int) -> None:
    attribute = "" if text is None else f"<axis{text}>"
    node = node_of(f"y = Concat {attribute} (x, z)" if text else "y = Identity (x)")
    assert dataflow.axis_of(node, dataflow.operand(node, 0), 0) == axis
    unknown = ir.Value(name="u")
    assert dataflow.axis_of(node, unknown, -1) == (-1 if text != ": int = 1" else 1)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("start", "stop", "axis", "step", "found"),
    [
        (2, 6, -1, 1, (2, 6)),
        (-3, 99, 2, None, (5, 8)),
        (2, 6, 1, 1, None),
        (2, 6, -1, 2, None),
    ],
)
def test_slices_of_the_last_axis(
    start: int, stop: int, axis: int, step: int | None, found: tuple[int, int] | None
) -> None:
    constants = {"a": ints(start), "b": ints(stop), "c": ints(axis)}
    operands = "x, a, b, c"
    if step is not None:
        constants["d"], operands = ints(step), "x, a, b, c, d"
    value = value_of(f"y = Slice ({operands})", **constants)
    result = dataflow.last_axis_range(value)
    assert (None if result is None else result[1:]) == found
    assert result is None or result[0].name == "x"


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("Split <axis: int = -1> (x, sizes)", [(0, 3), (3, 5), (5, 8)]),
        ("Split <axis: int = 2, num_outputs: int = 3> (x)", [(0, 3), (3, 6), (6, 8)]),
        ("Split <axis: int = 1, num_outputs: int = 3> (x)", [None] * 3),
    ],
)
def test_parts_of_a_split(text: str, ranges: list[tuple[int, int] | None]) -> None:
    node = node_of(f"y, b, c = {text}", sizes=ints(3, 2, 3))
    found = [dataflow.last_axis_range(value) for value in node.outputs]
    assert [None if part is None else part[1:] for part in found] == ranges


def test_other_values_are_no_range() -> None:
    assert dataflow.last_axis_range(value_of("y = Tanh (x)")) is None
    unknown = value_of("t = Tanh (x)\ny = Slice (t, a, b, c)", a=ints(0), b=ints(4), c=ints(-1))
    assert dataflow.last_axis_range(unknown) is None, "the width of t is not known"


def test_readers_are_listed_once() -> None:
    node = node_of("t = Tanh (x)\nu = Mul (t, t)\ny = Add (t, u)")
    (tanh, product, total) = node.graph or ()
    assert dataflow.uses(tanh.outputs[0]) == [product, total]


def test_a_node_is_put_in_front_of_another_and_takes_its_place() -> None:
    model = model_of("g (float[B,S,8] x) => (float[B,S,8] y)", "t = Tanh (x)\ny = Neg (t)")
    tanh, negated = model.graph
    new = dataflow.emit(negated, "Sqrt", [tanh.outputs[0]], tanh.outputs[0])
    new.name = "n"
    assert new.type == tanh.outputs[0].type
    dataflow.substitute(negated.outputs[0], new)
    assert nodes_text(model) == expected(
        """
        t = Tanh (x)
        y = Sqrt (t)
        y.old = Neg (t)"""
    )
    other = dataflow.emit(tanh, "Abs", [model.graph.inputs[0]], new, None, ["B", 4])
    assert dataflow.dims(other) == ["B", 4]


def test_a_node_outside_of_a_graph_has_no_place() -> None:
    with pytest.raises(ValueError, match="lost: node is in no graph"):
        dataflow.insert(ir.Node("", "Tanh", [], name="lost"), ir.Node("", "Tanh", []))


def test_a_miss_is_in_the_report_and_on_the_node() -> None:
    node, report = node_of("y = Tanh (x)"), PassReport()
    dataflow.miss(report, node, "it is round")
    assert report.skipped == ["Tanh: it is round"]
    assert node.meta[dataflow.MISS] == "it is round"
