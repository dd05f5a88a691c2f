"""Cutting units out: the graph as text, and a model without them beside one of zero columns."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.ir.linear import find_linears
from optc.ir.pipeline.base import PassReport
from optc.ir.weights import as_lazy
from optc.passes.prune.structured.channels import KV_GROUPS, NEURONS, find_channels
from optc.passes.prune.structured.check import check_structure
from optc.passes.prune.structured.cut import (
    cut_all,
    cut_channels,
    cut_columns,
    cut_rows,
    given_rows,
    refit,
    slices_of,
)
from optc.passes.prune.structured.decisions import Decisions
from tests.support.families import FAMILIES
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import dense_model
from tests.support.ragged import run, run_dense

TOKENS = list(range(20))


def without(model: ir.Model, kind: str, kept: np.ndarray, cut: bool) -> ir.Model:
    """The model without units: cut, or with zeros in the columns of the readers."""
    for one in find_channels(model, kind, PassReport()):
        stay = kept[kept < one.units]
        if cut:
            cut_channels(model, one, stay)
            continue
        for linear in one.linears:
            rows = linear.weight.read_rows(0, linear.weight.rows_shape[0]).copy()
            gone = np.setdiff1d(np.arange(one.units), stay)
            rows[:, slices_of(rows.shape[1], one.units, gone)] = 0
            linear.initializer.const_value = given_rows(linear.weight, rows)
    return model


@pytest.mark.parametrize("kind", [NEURONS, KV_GROUPS])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_units_gives_what_zero_columns_give(family: str, kind: str) -> None:
    shape = FAMILIES[family]
    rng = np.random.default_rng(len(family))
    kept = np.sort(rng.permutation(shape.inner)[:31]) if kind == NEURONS else np.array([0, 2])
    model = without(dense_model(shape), kind, kept, cut=True)
    check_structure(model)
    after = run_dense(model, TOKENS)
    wanted = run_dense(without(dense_model(shape), kind, kept, cut=False), TOKENS)
    np.testing.assert_allclose(after, wanted, rtol=1e-4, atol=2e-5)
    if kind == NEURONS:
        assert sum(v.const_value.size for v in model.graph.initializers.values()) < sum(  # type: ignore[union-attr]
            v.const_value.size  # type: ignore[union-attr]
            for v in dense_model(shape).graph.initializers.values()
        )


def test_the_graph_before_and_after_a_kv_head_is_out() -> None:
    nodes = """
        q0 = MatMul (x, wq)
        q1 = Add (q0, bq)
        k0 = MatMul (x, wk)
        v = MatMul (x, wv)
        q = optc.HeadRMSNorm <num_heads: int = 6, epsilon: float = 0.001> (q1, gamma)
        k = optc.HeadRMSNorm <num_heads: int = 3, epsilon: float = 0.001> (k0, gamma)
        a = optc.Attention <num_heads: int = 6, kv_num_heads: int = 3, scale: float = 0.5,\
 softcap: float = 0.0, window: int = 0> (q, k, v)
        h = MatMul (a, wo)
        y = MatMul (h, head)"""
    shapes = {"wq": (8, 12), "wk": (8, 6), "wv": (8, 6), "wo": (12, 8), "head": (8, 6)}
    weights = {name: f32(*shape) for name, shape in shapes.items()}
    weights |= {"bq": f32(12), "gamma": f32(2)}
    model = model_of("g (float[1,S,8] x) => (float[1,S,6] y)", nodes, weights)
    (groups,) = find_channels(model, KV_GROUPS, PassReport())
    cut_channels(model, groups, np.array([0, 2]))
    assert nodes_text(model) == expected(
        """
        q0 = MatMul (x, wq)
        q1 = Add (q0, bq)
        k0 = MatMul (x, wk)
        v = MatMul (x, wv)
        q = optc.HeadRMSNorm <num_heads = 4, epsilon = 0.001> (q1, gamma)
        k = optc.HeadRMSNorm <num_heads = 2, epsilon = 0.001> (k0, gamma)
        a = optc.Attention <num_heads = 4, kv_num_heads = 2, scale = 0.5, softcap = 0,\
 window = 0> (q, k, v)
        h = MatMul (a, wo)
        y = MatMul (h, head)"""
    )
    now = {n: v.const_value.numpy() for n, v in model.graph.initializers.items()}  # type: ignore[union-attr]
    heads, keys = [0, 1, 2, 3, 8, 9, 10, 11], [0, 1, 4, 5]
    np.testing.assert_array_equal(now["wq"], weights["wq"][:, heads])
    np.testing.assert_array_equal(now["bq"], weights["bq"][heads])
    np.testing.assert_array_equal(now["wk"], weights["wk"][:, keys])
    np.testing.assert_array_equal(now["wo"], weights["wo"][heads])
    assert run(model, {"x": f32(1, 5, 8)})[0].shape == (1, 5, 6)


def test_parts_of_a_split_shrink_with_their_rows() -> None:
    nodes = """
        both = MatMul (x, w)
        gate, up = Split <axis: int = -1> (both, sizes)
        s = Sigmoid (gate)
        p = Mul (up, s)
        h = MatMul (p, down)
        y = MatMul (h, head)"""
    weights = {"w": f32(8, 10), "down": f32(5, 8), "head": f32(8, 6)}
    sizes = {"sizes": np.array([5, 5], np.int64)}
    model = model_of("g (float[1,S,8] x) => (float[1,S,6] y)", nodes, weights | sizes)
    (neurons,) = find_channels(model, NEURONS, PassReport())
    cut_channels(model, neurons, np.array([1, 4]))
    initializers = model.graph.initializers
    np.testing.assert_array_equal(
        initializers["w"].const_value.numpy(),  # type: ignore[union-attr]
        weights["w"][:, [1, 4, 6, 9]],
    )
    split = next(node for node in model.graph if node.op_type == "Split")
    assert split.inputs[1].const_value.numpy().tolist() == [2, 2]  # type: ignore[union-attr]
    assert "sizes" not in initializers
    x = f32(1, 5, 8)
    both = x @ weights["w"]
    product = both[..., 5:] / (1 + np.exp(-both[..., :5]))
    wanted = product[..., [1, 4]] @ weights["down"][[1, 4]] @ weights["head"]
    np.testing.assert_allclose(run(model, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_rows_and_columns_are_read_as_they_are_wanted() -> None:
    array = f32(12, 7)
    weight = as_lazy(ir.tensor(array))
    rows, columns = np.array([1, 2, 7, 11]), np.array([0, 6])
    np.testing.assert_array_equal(cut_rows(weight, rows).read_rows(1, 4), array[[2, 7, 11]])
    assert cut_rows(weight, rows).read_rows(2, 2).shape == (0, 7)
    cut = cut_columns(weight, columns)
    np.testing.assert_array_equal(cut.read_rows(3, 9), array[3:9][:, columns])
    assert cut.rows_shape == (12, 2)


def test_fitted_weights_are_set_whether_their_rows_are_cut_or_not() -> None:
    model = dense_model(FAMILIES["llama"])
    (neurons, *_) = find_channels(model, NEURONS, PassReport())
    gate, down = neurons.rows[0].linear.name, neurons.name
    kept = np.arange(8)
    found = Decisions({down: kept}, {gate: f32(48, 32), down: f32(32, 8)})
    report = PassReport()
    cut_all(model, [neurons], found, report)
    now = {
        one.name: one.weight.read_rows(0, one.weight.rows_shape[0]) for one in find_linears(model)
    }
    np.testing.assert_array_equal(now[gate], f32(48, 32)[:8])
    np.testing.assert_array_equal(now[down], f32(32, 8))
    assert report.details == {"neurons": 40}


def test_a_fitted_weight_of_another_shape_is_an_internal_error() -> None:
    with pytest.raises(ValueError, match=r"0\.o\.weight: \(3, 3\) for a weight \(32, 32\)"):
        refit(dense_model(FAMILIES["llama"]), {"0.o.weight": f32(3, 3)})
