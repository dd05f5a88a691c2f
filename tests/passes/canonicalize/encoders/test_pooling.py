"""Poolings and lengths, however they are spelled, beside ONNX's own text."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.forms.packed import Patches
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims
from optc.passes.canonicalize.encoders.pooling import find_normalization, find_pooling
from optc.passes.canonicalize.encoders.source import Source
from tests.passes.canonicalize.texts import exported
from tests.support.ir_text import Array, f32
from tests.support.ragged import run

SIGNATURE = (
    "(int64[batch,tokens] ids, int64[batch,tokens] mask, float[batch,tokens,6] h, float[batch,6] u)"
    " => (float[batch,N] y)"
)
NUMBERS: dict[str, Any] = {
    "n0": np.array([0]),
    "n1": np.array([1]),
    "n2": np.array([2]),
    "n4": np.array([4]),
    "first": np.array(0),
    "minus": np.array([-1]),
    "much": np.array([2**62]),
    "low": np.float32(-1e9),
    "one": np.float32(1),
    "half": np.float32(0.5),
    "least": np.float32(1e-12),
    "sizes": np.array([0, 6]),
    "weight": f32(6, 6),
}
#: Rows of a product: a pooling begins behind one.
ROWS = "r = MatMul (h, weight)"
SEEN = "f = Cast <to = 1> (mask) m = Unsqueeze (f, minus)"
#: Nodes that make ``y`` of rows ``x``, and what they are.
POOLED = {
    "a mean": (
        f"{SEEN} a = Mul (x, m) s = ReduceSum <keepdims = 0> (a, n1) "
        "c = ReduceSum <keepdims = 0> (m, n1) y = Div (s, c)",
        "mean",
    ),
    "a maximum": (
        f"{SEEN} b = Cast <to = 9> (m) a = Where (b, x, low) y = ReduceMax <keepdims = 0> (a, n1)",
        "max",
    ),
    "the first": ("y = Gather <axis = 1> (x, first)", "first"),
    "the first, by a slice": ("a = Slice (x, n0, n1, n1) y = Squeeze (a, n1)", "first"),
    "the last": (
        "s = CumSum (mask, one1) t = ArgMax <axis = 1> (s) e = Unsqueeze (t, minus) "
        "w = Expand (e, wide) a = GatherElements <axis = 1> (x, w) y = Squeeze (a, n1)",
        "last",
    ),
}
NUMBERS |= {"one1": np.array(1), "wide": np.array([1, 1, 6])}


def model_of(nodes: str, *, batch: str = "batch") -> tuple[ir.Model, Source, ir.Value]:
    words = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: array for name, array in NUMBERS.items() if name in words}
    model = exported(SIGNATURE, nodes, None, used)
    ids, mask, _, _ = model.graph.inputs
    starts = ir.Value(
        name="query_starts", type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(["B+1"])
    )
    model.graph.inputs.append(starts)
    return model, Source(model.graph, ids, mask, None, batch, "tokens"), starts


def pooled(nodes: str) -> tuple[ir.Model, dict[str, int]]:
    """What is found, and the model."""
    model, source, starts = model_of(nodes)
    report = PassReport()
    values = find_pooling(model, source, starts, report)
    pools = [node for node in model.graph if node.op_type == "PoolRows"]
    assert values == [node.outputs[0] for node in pools]
    for node in pools:
        assert node.inputs[1] is starts
        assert dims(node.outputs[0]) == ["batch", 6]
    return model, report.details


def pool(model: ir.Model) -> tuple[str | None, str, int]:
    """Rows, mode and rows that are left out of the only one."""
    (node,) = [node for node in model.graph if node.op_type == "PoolRows"]
    rows = node.inputs[0]
    assert rows is not None
    assert ("skip" in node.attributes) == (node.attributes.get_int("skip", 0) > 0)
    return rows.name, node.attributes["mode"].as_string(), node.attributes.get_int("skip", 0)


@pytest.mark.parametrize("name", POOLED)
def test_poolings_of_a_products_rows(name: str) -> None:
    nodes, mode = POOLED[name]
    model, details = pooled(f"{ROWS} x = Identity (r) {nodes}")
    assert details == {f"pooling, {mode}": 1}
    assert pool(model) == ("r", mode, 0)
    assert model.graph.outputs[0].producer() is not None
    assert model.graph.outputs[0].producer().op_type == "PoolRows"


@pytest.mark.parametrize("skip", [1, 2, 5])
@pytest.mark.parametrize("name", ["a mean", "the first"])
def test_first_rows_that_are_left_out(name: str, skip: int) -> None:
    """As a pooling of patches leaves out the row of the class."""
    nodes, mode = POOLED[name]
    NUMBERS["skip"] = np.array([skip])
    cut = "x = Slice (r, skip, much, n1)"
    nodes = nodes.replace("(f, minus)", "(z, minus)").replace(
        "f = Cast <to = 1> (mask)", "f = Cast <to = 1> (mask) z = Slice (f, skip, much, n1)"
    )
    model, _ = pooled(f"{ROWS} {cut} {nodes}")
    assert pool(model) == ("r", mode, skip)


def test_rows_of_a_sum_and_the_rows_behind_it() -> None:
    """No norm stands behind a sum: the nearest value of rows is what is pooled."""
    nodes = f"a1 = MatMul (h, weight) x = Add (a1, h) {POOLED['a mean'][0]}"
    model, _ = pooled(nodes)
    assert not [node for node in model.graph if node.op_type == "PoolRows"], "two paths, by a mask"
    for rows in ("a1 = MatMul (h, weight) x = Add (a1, h)", f"{ROWS} x = Mul (r, half)"):
        model, _ = pooled(f"{rows} {POOLED['the first'][0]}")
        assert pool(model) == ("x", "first", 0)


@pytest.mark.parametrize(
    "nodes",
    [
        f"{ROWS} y = ReduceMean <keepdims = 0> (r, n1)",  # of padding, too
        f"{ROWS} x = Identity (r) {POOLED['the first'][0].replace('first', 'second')}",
        f"{ROWS} x = Identity (r) {POOLED['a mean'][0].replace('Div (s, c)', 'Div (c, s)')}",
        f"{ROWS} a = Gather <axis = 2> (r, first) y = Identity (a)",
        f"{ROWS} a = Cast <to = 7> (r) g = Gather <axis = 1> (a, first) y = Cast <to = 1> (g)",
        "y = Relu (u)",
        "q = MatMul (u, weight) y = Identity (q)",
    ],
)
def test_what_is_no_pooling_stays(nodes: str) -> None:
    NUMBERS["second"] = np.array(30)
    model, source, starts = model_of(nodes)
    before = [node.op_type for node in model.graph]
    report = PassReport()
    assert find_pooling(model, source, starts, report) == []
    assert report.count == 0
    assert [node.op_type for node in model.graph] == before


def test_rows_of_images_are_as_many_as_there_are_patches() -> None:
    nodes = f"{ROWS} s = ReduceMean <keepdims = 0> (r, n1) y = Identity (s)"
    model, source, starts = model_of(nodes)
    patches = Patches("x", (4, 4), 5, 1, 0)
    of_images = Source(model.graph, source.ids, None, None, "batch", "tokens", patches)
    find_pooling(model, of_images, starts, PassReport())
    assert pool(model) == ("r", "mean", 0)


@pytest.mark.parametrize("skip", [14, 15, 16])
def test_so_many_rows_of_images_may_be_left_out(skip: int) -> None:
    NUMBERS["skip"] = np.array([skip])
    nodes = f"{ROWS} x = Slice (r, skip, much, n1) s = ReduceMean <keepdims = 0> (x, n1)"
    model, source, starts = model_of(f"{nodes} y = Identity (s)")
    patches = Patches("x", (4, 4), 20, 1, 0)
    of_images = Source(model.graph, source.ids, None, None, "batch", "tokens", patches)
    assert len(find_pooling(model, of_images, starts, PassReport())) == (skip < 16)
    if skip < 16:
        assert pool(model) == ("r", "mean", skip)


UNIT = {
    "by its norm": "n = ReduceL2 <keepdims = 1> (u, minus) y = Div (u, n)",
    "by its norm, at least something": (
        "n = ReduceL2 <keepdims = 1> (u, minus) c = Max (n, least) e = Expand (c, sizes1) "
        "y = Div (u, e)"
    ),
    "by the root of squares": (
        "q = Mul (u, u) s = ReduceSum <keepdims = 1> (q, minus) n = Sqrt (s) y = Div (u, n)"
    ),
}
NUMBERS["sizes1"] = np.array([1, 6])


@pytest.mark.parametrize("name", UNIT)
def test_a_vector_over_its_length_is_a_norm(name: str) -> None:
    model, source, _ = model_of(UNIT[name])
    report = PassReport()
    find_normalization(model, source, report)
    assert report.details == {"unit length": 1}
    vectors = f32(3, 6) * np.array([[1], [1e-3], [1e3]], np.float32)
    (found,) = run(model, _inputs(vectors, model))
    wanted = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    (zero,) = run(model, _inputs(np.zeros((1, 6), np.float32), model))
    assert not zero.any()


def _inputs(vectors: Array, model: ir.Model) -> dict[str, Array]:
    ids = np.ones((len(vectors), 2), np.int64)
    given = {"ids": ids, "mask": ids, "h": f32(len(vectors), 2, 6), "u": vectors}
    return given | {"query_starts": np.zeros(2, np.int32)}


@pytest.mark.parametrize(
    "nodes",
    [
        "n = ReduceL1 <keepdims = 1> (u, minus) y = Div (u, n)",
        "n = ReduceL2 <keepdims = 1> (u, n0) y = Div (u, n)",
        "n = ReduceL2 <keepdims = 1> (u, minus) y = Mul (u, n)",
        "n = ReduceL2 <keepdims = 1> (u, minus) y = Div (n, u)",
        "n = ReduceL2 <keepdims = 1> (u, minus) a = Mul (n, half) y = Div (u, a)",
        "p = MatMul (u, weight) n = ReduceL2 <keepdims = 1> (p, minus) y = Div (u, n)",
        "n = ReduceL2 <keepdims = 1> (h, minus) d = Div (h, n) y = Gather <axis = 1> (d, first)",
    ],
)
def test_other_quotients_stay(nodes: str) -> None:
    model, source, _ = model_of(nodes)
    before = [node.op_type for node in model.graph]
    find_normalization(model, source, PassReport())
    assert [node.op_type for node in model.graph] == before
