"""`rotate`: the function stays, and 8 bits lose less where there are outliers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc.errors import InputError
from optc.ir.linear import find_linear
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import Pass, PassContext
from optc.passes.numerics.hadamard import rotation
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.rotate import Rotate
from tests.support.families import FAMILIES
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.letters import letters_folder
from tests.support.models import Dense as Shape
from tests.support.models import dense_model
from tests.support.outliers import INT4, INT8, after, decibels, planted
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver, run, run_dense

#: What stops the turning of the residual stream.
REFUSED = {
    "alibi": "a LayerNormalization reads the residual stream",
    "embeddings of layers": "tokens do not go through one embedding",
    "gemma2": "what it adds to the residual stream is no linear layer's own",
    "olmo2": "a MatMul reads the residual stream",
    "stablelm": "a LayerNormalization reads the residual stream",
    "starcoder2": "a LayerNormalization reads the residual stream",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_function_stays(family: str) -> None:
    model, tokens = dense_model(FAMILIES[family]), list(range(20))
    before = run_dense(model, tokens)
    report = Rotate().run(model)
    shared = 2 if FAMILIES[family].shared_kv else 0  # several attentions read them
    assert report.details["values of an attention"] == len(FAMILIES[family].attentions) - shared
    assert report.details.get("residual stream", 0) == (family not in REFUSED)
    if family in REFUSED:
        assert REFUSED[family] in report.skipped[0]
    np.testing.assert_allclose(run_dense(model, tokens), before, rtol=1e-4, atol=2e-5)


SIGNATURE = "g (int64[1,S] tokens) => (float[1,S,9] y)"
NODES = """
    e = Gather <axis: int = 0> (table, tokens)
    n = RMSNormalization <axis: int = -1> (e, gamma)
    a0 = MatMul (n, w)
    a = Add (a0, bias)
    h = Add (e, a)
    z = RMSNormalization <axis: int = -1> (h, delta)
    y = MatMul (z, head)"""


def test_the_stream_is_turned_between_its_ends() -> None:
    weights = {"table": f32(9, 8), "gamma": f32(8), "w": f32(8, 8), "bias": f32(8, seed=2)}
    weights |= {"delta": f32(8, seed=1), "head": f32(8, 9)}
    model = model_of(SIGNATURE, NODES, weights)
    feeds = {"tokens": np.arange(9)[None]}
    before = run(model, feeds)[0]
    assert Rotate().run(model).details == {"residual stream": 1}
    assert nodes_text(model) == expected(
        """
        e = Gather <axis = 0> (table, tokens)
        rotate.turn.result = MatMul (e, rotate.turn.matrix)
        n = RMSNormalization <axis = -1> (rotate.turn.result, gamma)
        a0 = MatMul (n, w)
        a = Add (a0, bias)
        h = Add (rotate.turn.result, a)
        rotate.turn_back.result = MatMul (h, rotate.turn_back.matrix)
        z = RMSNormalization <axis = -1> (rotate.turn_back.result, delta)
        y = MatMul (z, head)"""
    )
    np.testing.assert_allclose(run(model, feeds)[0], before, rtol=1e-5, atol=1e-5)
    turn = rotation(8, 1)
    assert turn is not None
    want = turn.T @ np.diag(weights["gamma"]) @ weights["w"] @ turn
    found = {name: v.const_value.numpy() for name, v in model.graph.initializers.items()}  # type: ignore[union-attr]
    np.testing.assert_allclose(found["w"], want, atol=1e-5)
    np.testing.assert_allclose(found["bias"], weights["bias"] @ turn, atol=1e-6)
    np.testing.assert_array_equal(found["gamma"], np.ones(8, np.float32))
    for same in ("table", "delta", "head"):
        np.testing.assert_array_equal(found[same], weights[same])
    products = [node for node in model.graph if str(node.name).startswith("rotate.")]
    assert [find_linear(node) for node in products] == [None, None]


def test_the_products_at_the_ends_stay_float_in_a_quantized_step() -> None:
    shape, tokens = FAMILIES["llama"], list(range(20))
    model = dense_model(shape)
    spec = "rotate,fuse-qkv,fuse-gate-up,kv-cache,fuse-residual-norm,fuse-rotary,quantize-weights"
    pipeline_of(spec + ",fuse-norm-quantize").run(model)
    assert [node.op_type for node in model.graph].count("MatMul") == 2
    want = run_dense(dense_model(shape), tokens)
    near = 0.05 * np.abs(want).max()
    np.testing.assert_allclose(RaggedDriver(model).step({1: tokens}), want, rtol=0, atol=near)


def test_rotation_undoes_outliers_of_activations(tmp_path: Path) -> None:
    folder = letters_folder(tmp_path)
    plain = decibels(after(planted(), folder, INT8))
    assert decibels(after(planted(), folder, "rotate", INT8)) > plain + 5


def test_it_goes_with_gptq_and_propagated_errors(tmp_path: Path) -> None:
    folder = letters_folder(tmp_path)
    grid = {"quantize-weights": INT4["quantize-weights"] | {"method": "gptq"}}
    plain = decibels(after(planted(), folder, INT4))
    assert decibels(after(planted(), folder, "rotate", "calibrate", grid)) > plain + 2
    assert decibels(after(planted(), folder, "rotate", "propagate-errors", grid)) > plain + 2


def test_widths_without_a_hadamard_matrix_are_named() -> None:
    weights = {"table": f32(9, 6), "gamma": f32(6), "w": f32(6, 6), "bias": f32(6, seed=2)}
    weights |= {"delta": f32(6, seed=1), "head": f32(6, 9)}
    model = model_of(SIGNATURE, NODES, weights)
    before = nodes_text(model)
    report = Rotate().run(model)
    assert report.count == 0
    assert report.skipped == ["no Hadamard matrix of order 6 is known"]
    assert nodes_text(model) == before


def test_heads_without_a_hadamard_matrix_are_named() -> None:
    shape = Shape(head_dim=6, rotary_dim=4)
    model, tokens = dense_model(shape), list(range(20))
    before = run_dense(model, tokens)
    report = Rotate().run(model)
    assert report.details == {"residual stream": 1}
    reasons = [line.partition(": ")[2] for line in report.skipped]
    assert reasons == ["no Hadamard matrix of order 6 is known"] * shape.layers
    np.testing.assert_allclose(run_dense(model, tokens), before, rtol=1e-4, atol=2e-5)


def test_adapters_are_refused() -> None:
    adapters: Pass = registry.passes()["adapters"].from_options({"max": 1, "rank": 1})
    with pytest.raises(InputError, match="pass rotate: adapters would read other inputs"):
        Rotate().run(
            dense_model(FAMILIES["llama"]), PassContext(later=(QuantizeWeights(), adapters))
        )


@pytest.mark.parametrize("earlier", ["calibrate", "fuse-qkv", "propagate-errors"])
def test_it_comes_first(earlier: str) -> None:
    with pytest.raises(InputError, match=f"rotate must come before {earlier}"):
        pipeline_of(f"{earlier},rotate")
