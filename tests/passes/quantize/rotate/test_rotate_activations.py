"""`rotate-activations`: who reads rotated inputs, the function stays, and what is left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import find_linears, mark_pruned
from optc.ir.pipeline.base import Pass, PassContext
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import Given, LazyWeight
from optc.passes.numerics.affine import quantized_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.rotate_activations import RotateActivations
from tests.support.families import FAMILIES
from tests.support.hadamard import rotation
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import dense_model
from tests.support.ragged import run, run_dense

SIGNATURE = "g (int64[1,S] tokens) => (float[1,S,9] y)"
NODES = """
    e = Gather <axis: int = 0> (table, tokens)
    n = RMSNormalization <axis: int = -1> (e, gamma)
    a = MatMul (n, w1)
    b = MatMul (n, w2)
    c = Mul (a, b)
    d = MatMul (c, w3)
    h = Add (e, d)
    y = MatMul (h, head)"""
LATER = (QuantizeWeights(),)


def weights() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    return {
        "table": f32(9, 20),
        "gamma": f32(20),
        "w1": f32(20, 16),
        "w2": f32(20, 16, seed=1),
        "w3": f32(16, 20),
        "head": f32(20, 9),
    }


def test_before_and_after() -> None:
    model = model_of(SIGNATURE, NODES, weights())
    feeds = {"tokens": np.arange(9)[None]}
    before = run(model, feeds)[0]
    report = RotateActivations().run(model, PassContext(later=tuple(LATER)))
    assert report.details == {"blocks of 16": 3}
    assert nodes_text(model) == expected(
        """
        e = Gather <axis = 0> (table, tokens)
        n = RMSNormalization <axis = -1> (e, gamma)
        n.rotated = optc.BlockHadamard <block = 16, width = 20> (n)
        a = MatMul (n.rotated, w1)
        b = MatMul (n.rotated, w2)
        c = Mul (a, b)
        c.rotated = optc.BlockHadamard <block = 16, width = 16> (c)
        d = MatMul (c.rotated, w3)
        h = Add (e, d)
        h.rotated = optc.BlockHadamard <block = 16, width = 20> (h)
        y = MatMul (h.rotated, head)"""
    )
    np.testing.assert_allclose(run(model, feeds)[0], before, rtol=1e-4, atol=1e-5)
    first = find_linears(model)[0].weight.read_rows(0, 16)
    np.testing.assert_allclose(first, weights()["w1"].T @ rotation(20, 16), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_function_stays(family: str) -> None:
    model, tokens = dense_model(FAMILIES[family]), list(range(20))
    before = run_dense(model, tokens)
    report = RotateActivations().run(model, PassContext(later=tuple(LATER)))
    assert sum(n for kind, n in report.details.items() if kind.startswith("blocks")) > 4
    np.testing.assert_allclose(run_dense(model, tokens), before, rtol=1e-4, atol=5e-5)


def test_rows_of_a_tied_embedding_are_rotated_back() -> None:
    table = LazyWeight(lambda a, b: f32(9, 20)[a:b], (9, 20), ir.DataType.FLOAT, "table")
    nodes = "e = Gather <axis: int = 0> (table, tokens)\ny = MatMul (e, head)"
    model = model_of(SIGNATURE, nodes, {"table": f32(9, 20), "head": f32(20, 9)})
    model.graph.initializers["table"].const_value = table
    model.graph.initializers["head"].const_value = table.transpose()
    feeds = {"tokens": np.arange(9)[None]}
    before = run(model, feeds)[0]
    report = RotateActivations().run(model, PassContext(later=tuple(LATER)))
    assert report.details == {"blocks of 16": 1, "tied embedding": 1}
    assert nodes_text(model) == expected(
        """
        e = Gather <axis = 0> (table, tokens)
        e.rotated_back = optc.BlockHadamard <block = 16, width = 20, inverse = 1> (e)
        e.rotated = optc.BlockHadamard <block = 16, width = 20> (e.rotated_back)
        y = MatMul (e.rotated, head)"""
    )
    np.testing.assert_allclose(run(model, feeds)[0], before, rtol=1e-4, atol=1e-4)
    found = QuantizeWeights().run(model)
    assert found.details["embedding shares the head"] == 1


def test_other_tables_before_a_tied_one_stay() -> None:
    """Plain tensors, lazy ones of other weights, and what looks nothing up."""
    table = LazyWeight(lambda a, b: f32(9, 20)[a:b], (9, 20), ir.DataType.FLOAT, "table")
    others = {"plain": f32(9, 20, seed=1), "lazy": f32(9, 20, seed=2)}
    nodes = """
        a = Gather <axis: int = 0> (plain, tokens)
        b = Gather <axis: int = 0> (lazy, tokens)
        e = Gather <axis: int = 0> (table, tokens)
        c = Add (a, b)
        d = Add (c, e)
        y = MatMul (d, head)"""
    model = model_of(SIGNATURE, nodes, {**others, "table": f32(9, 20), "head": f32(20, 9)})
    initializers = model.graph.initializers
    initializers["table"].const_value = table
    initializers["head"].const_value = table.transpose()
    initializers["plain"].const_value = ir.tensor(others["plain"])
    initializers["lazy"].const_value = LazyWeight(
        lambda a, b: others["lazy"][a:b], (9, 20), ir.DataType.FLOAT, "lazy"
    )
    feeds = {"tokens": np.arange(9)[None]}
    before = run(model, feeds)[0]
    report = RotateActivations().run(model, PassContext(later=tuple(LATER)))
    assert report.details == {"blocks of 16": 1, "tied embedding": 1}
    np.testing.assert_allclose(run(model, feeds)[0], before, rtol=1e-4, atol=1e-4)
    for name, array in others.items():
        tensor = initializers[name].const_value
        assert tensor is not None
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_pruned_weights_are_left() -> None:
    model = model_of(SIGNATURE, NODES, weights())
    mark_pruned(model.graph.initializers["w2"])
    report = RotateActivations().run(model, PassContext(later=tuple(LATER)))
    assert report.details == {"blocks of 16": 2}
    assert "weights that were pruned would be zero no longer" in report.skipped[0]


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("given", ["keep", "requantize"])
def test_a_coarse_grid_that_is_kept_is_left(readers: int, bits: int, given: str) -> None:
    """Of 8 bits, it loses next to nothing to be rounded again; activations lose more. Where others
    read the same input, all of them have to have such grids."""
    model = model_of(SIGNATURE, NODES, {**weights(), "w1": f32(32, 16), "w2": f32(32, 16, seed=1),
                                        "table": f32(9, 32), "gamma": f32(32), "w3": f32(16, 32),
                                        "head": f32(32, 9)})  # fmt: skip
    for one in find_linears(model)[:readers]:
        rows = quantized_rows(one.weight, Scheme(bits, 32 if bits == 4 else 0, True), "w")
        assert isinstance(rows, QuantizedRows)
        one.initializer.const_value = LazyWeight(
            *(one.weight.read_rows, one.weight.rows_shape, ir.DataType.FLOAT, "w"),
            transposed=True,
            given=Given("INT", rows),
        )
    report = RotateActivations().run(model, PassContext(later=(QuantizeWeights(given=given),)))
    left = bits == 4 and given == "keep" and readers == 2
    assert sum(report.details.values()) == (2 if left else 3)
    assert [text.split(": ")[-1] for text in report.skipped] == (
        ["the checkpoint's grid is kept"] if left else []
    )


def test_a_weight_that_others_read_is_left() -> None:
    nodes = NODES.replace("h = Add (e, d)", "f = MatMul (n, w3_)\nh0 = Add (e, d)\nh = Add (h0, t)")
    nodes = nodes.replace("f = MatMul (n, w3_)", "k = Identity (w3)\nt = MatMul (c, k)")
    model = model_of(SIGNATURE, nodes, weights())
    report = RotateActivations().run(model, PassContext(later=tuple(LATER)))
    assert "another node reads the same weight" in report.skipped[0]
    assert report.details == {"blocks of 16": 2}


def test_narrow_inputs_and_a_float_head_are_left() -> None:
    given = {**weights(), "w1": f32(20, 8), "w2": f32(20, 8), "w3": f32(8, 20)}
    model = model_of(SIGNATURE, NODES, given)
    report = RotateActivations().run(model, PassContext(later=(QuantizeWeights(head=False),)))
    assert report.details == {"blocks of 16": 1}
    assert "8 channels are fewer than a block has" in report.skipped[0]


@pytest.mark.parametrize("name", ["hidden-states", "medusa-heads"])
def test_the_heads_input_is_left_where_drafts_read_it(name: str) -> None:
    model = model_of(SIGNATURE, NODES, weights())
    reader = SimpleNamespace(name=name)
    report = RotateActivations().run(model, PassContext(later=(*LATER, cast(Pass, reader))))
    assert report.details == {"blocks of 16": 2}
    assert "y = MatMul (h, head)" in nodes_text(model)


def test_no_blocks_are_nothing() -> None:
    model = model_of(SIGNATURE, NODES, weights())
    before = nodes_text(model)
    assert RotateActivations(block=0).run(model).details == {}
    assert nodes_text(model) == before


def test_it_needs_quantization_and_a_known_block() -> None:
    model = model_of(SIGNATURE, NODES, weights())
    with pytest.raises(InputError, match="no quantize-weights comes after it"):
        RotateActivations().run(model)
    with pytest.raises(InputError, match="block=32 is not possible"):
        RotateActivations(block=32)
