"""`latent-kv`: the graph before and after, the function that stays, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import mark_pruned
from optc.ir.pipeline.base import Pass, PassContext
from optc.passes.adapters.add_adapters import AddAdapters
from optc.passes.canonicalize.dense_form import check_dense_form
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.kv_cache.latent_kv import LatentKV
from optc.passes.prune.weights.prune_weights import PruneWeights
from optc.passes.quantize.budget.allocate_bits import AllocateBits
from tests.support.families import FAMILIES
from tests.support.ir_text import expected, f32, model_of, nodes_text
from tests.support.models import dense_model
from tests.support.ragged import run, run_dense

KEPT = FAMILIES["kept_latents"]
TOKENS = list(range(20))
#: Two heads of 8 shared columns, turned, and 16 own ones; values of 12; a latent of 8.
SIGNATURE = "g (float[1,S,32] x, float[1,S,4] cos, float[1,S,4] sin) => (float[1,S,32] y)"
TURN = "num_heads: int = 2, rotary_embedding_dim: int = 8, interleaved: int = 0"
ATTEND = (
    "num_heads: int = 2, kv_num_heads: int = 2, scale: float = 0.25, softcap: float = 0.0,"
    " window: int = 3"
)
NODES = f"""
    c = MatMul (x, wc)
    shared = MatMul (x, ws)
    q0 = MatMul (x, wq)
    q = RotaryEmbedding <{TURN}> (q0, cos, sin)
    own = MatMul (c, wk)
    k0 = optc.HeadConcat <num_heads: int = 2, shared: int = 1> (shared, own)
    k = RotaryEmbedding <{TURN}> (k0, cos, sin)
    v = MatMul (c, wv)
    a = optc.Attention <{ATTEND}> (q, k, v)
    y = MatMul (a, wo)"""
#: Width of every value whose shape the passes read.
WIDTHS = {"c": 8, "shared": 8, "q0": 48, "q": 48, "own": 32, "k0": 48, "k": 48, "v": 24, "a": 24}
SHAPES = {
    "wc": (32, 8),
    "ws": (32, 8),
    "wq": (32, 48),
    "wk": (8, 32),
    "wv": (8, 24),
    "wo": (24, 32),
    "wk2": (32, 32),
    "bias": (24,),
}


def model(nodes: str = NODES, **widths: int) -> ir.Model:
    shapes = {name: shape for name, shape in SHAPES.items() if f"{name})" in nodes}
    weights = {name: f32(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    built = model_of(SIGNATURE, nodes, weights)
    for value in (value for node in built.graph for value in node.outputs):
        if (size := {**WIDTHS, **widths}.get(str(value.name))) is not None:
            value.shape = ir.Shape([1, "S", size])
            value.type = ir.TensorType(ir.DataType.FLOAT)
    return built


def inputs() -> dict[str, np.ndarray]:
    angles = np.arange(7)[None, :, None] * np.array([1.0, 0.3, 0.1, 0.01])
    return {
        "x": f32(1, 7, 32),
        "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
    }


def test_before_and_after() -> None:
    built = model()
    before = run(built, inputs())[0]
    report = LatentKV("latents").run(built)
    assert report.details == {"latents of 8, 8 shared columns": 1}
    attend = "num_heads = 2, kv_num_heads = 1, scale = 0.25, softcap = 0, window = 3"
    turn = "rotary_embedding_dim = 8, interleaved = 0"
    assert nodes_text(built) == expected(
        f"""
        c = MatMul (x, wc)
        shared = MatMul (x, ws)
        val_0 = MatMul (x, wq.latent)
        val_1, val_2 = Split <axis = -1> (val_0, query_parts)
        val_3, val_4 = optc.SplitHeads <num_heads = 2> (val_2)
        val_5 = optc.ExpertMatMul <num_experts = 2, spread = 0> (val_3, val_4, wk.absorbed)
        val_6 = optc.MergeHeads (val_5)
        val_7 = optc.HeadConcat <num_heads = 2, shared = 0> (val_1, val_6)
        val_8 = optc.HeadConcat <num_heads = 1, shared = 0> (shared, c)
        val_9 = RotaryEmbedding <num_heads = 2, {turn}> (val_7, cos, sin)
        val_10 = RotaryEmbedding <num_heads = 1, {turn}> (val_8, cos, sin)
        val_11 = optc.Attention <{attend}> (val_9, val_10, c)
        val_12, val_13 = optc.SplitHeads <num_heads = 2> (val_11)
        val_14 = optc.ExpertMatMul <num_experts = 2, spread = 0> (val_12, val_13, wv)
        val_15 = optc.MergeHeads (val_14)
        y = MatMul (val_15, wo)"""
    )
    np.testing.assert_allclose(run(built, inputs())[0], before, rtol=1e-4, atol=1e-4)


WITHOUT = {"k0": 32, "k": 32, "q0": 32, "q": 32}


@pytest.mark.parametrize(
    ("nodes", "widths", "details"),
    [
        pytest.param(
            NODES.replace(f"q = RotaryEmbedding <{TURN}> (q0, cos, sin)", "")
            .replace(f"k = RotaryEmbedding <{TURN}> (k0, cos, sin)", "")
            .replace("(q, k, v)", "(q0, k0, v)"),
            {},
            {"latents of 8, 8 shared columns": 1},
            id="no rotary embedding",
        ),
        pytest.param(
            NODES.replace(f"q = RotaryEmbedding <{TURN}> (q0, cos, sin)", "")
            .replace(f"k = RotaryEmbedding <{TURN}> (k0, cos, sin)", "")
            .replace("k0 = optc.HeadConcat <num_heads: int = 2, shared: int = 1> (shared, own)", "")
            .replace("MatMul (x, wq)", "MatMul (x, wk2)")
            .replace("(q, k, v)", "(q0, own, v)"),
            WITHOUT,
            {"latents of 8, 0 shared columns": 1},
            id="no shared columns",
        ),
    ],
)
def test_other_legal_cases(nodes: str, widths: dict[str, int], details: dict[str, int]) -> None:
    built = model(nodes, **widths)
    before = run(built, inputs())[0]
    assert LatentKV("latents").run(built).details == details
    np.testing.assert_allclose(run(built, inputs())[0], before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("nodes", "widths", "reason"),
    [
        pytest.param(
            NODES.replace("v = MatMul (c, wv)", "v0 = MatMul (c, wv)\n    v = Add (v0, bias)"),
            {"v0": 24},
            "its projections of the latent have biases",
            id="bias",
        ),
        pytest.param(
            NODES.replace("own = MatMul (c, wk)", "own = MatMul (x, wk2)"),
            {},
            None,
            id="keys and values of two sources",
        ),
        pytest.param(
            NODES.replace("kv_num_heads: int = 2", "kv_num_heads: int = 1"),
            {},
            "several heads of queries share one of keys",
            id="grouped queries",
        ),
        pytest.param(
            NODES.replace(f"q = RotaryEmbedding <{TURN}> (q0, cos, sin)", "").replace(
                "(q, k, v)", "(q0, k, v)"
            ),
            {},
            "a rotary embedding is on only one of queries and keys",
            id="one is turned",
        ),
        pytest.param(
            NODES.replace(f"k = RotaryEmbedding <{TURN}>", f"k = RotaryEmbedding <{TURN}>".replace(
                "interleaved: int = 0", "interleaved: int = 1")),
            {},
            "its rotary embedding turns columns of single heads",
            id="turned in two ways",
        ),
    ],
)  # fmt: skip
def test_what_is_left_alone(nodes: str, widths: dict[str, int], reason: str | None) -> None:
    built = model(nodes, **widths)
    before = nodes_text(built)
    report = LatentKV("latents").run(built)
    assert report.count == 0
    assert nodes_text(built) == before
    assert report.skipped == ([] if reason is None else [f"Attention: {reason}"])


def test_values_have_the_shapes_that_are_stated() -> None:
    built = model()
    LatentKV("latents").run(built)
    values = [value for node in built.graph for value in node.outputs]
    built.graph.outputs.extend(values[:-1])
    found = dict(zip((v.name for v in built.graph.outputs), run(built, inputs()), strict=True))
    for value in values:
        assert value.shape is not None
        stated = [7 if dim == "S" else dim for dim in value.shape]
        assert list(found[value.name].shape) == stated, value.name


def test_an_attention_that_is_left_alone_holds_up_no_other() -> None:
    built = dense_model(KEPT)
    mark_pruned(built.graph.initializers["0.k_b.weight"])
    assert LatentKV("latents").run(built).count == len(KEPT.attentions) - 1


def test_pruned_weights_stay() -> None:
    built = model()
    mark_pruned(built.graph.initializers["wk"])
    report = LatentKV("latents").run(built)
    assert report.count == 0
    assert "weights that were pruned" in report.skipped[0]


def test_queries_whose_columns_have_their_places_stay() -> None:
    built = model(NODES.replace("q0 = MatMul (x, wq)", "q1 = MatMul (x, wq)\n    q0 = Tanh (q1)"))
    before = run(built, inputs())[0]
    report = LatentKV("latents").run(built)
    assert report.count == 0
    assert "cannot be put in another order" in report.skipped[0]
    np.testing.assert_array_equal(run(built, inputs())[0], before)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_function_stays(family: str) -> None:
    """Every family gives the same logits, and only narrow latents are taken."""
    built = dense_model(FAMILIES[family])
    before = run_dense(built, TOKENS)
    report = LatentKV("latents").run(built)
    assert report.count == (len(KEPT.attentions) if family == "kept_latents" else 0)
    check_dense_form(built)
    np.testing.assert_allclose(run_dense(built, TOKENS), before, rtol=1e-3, atol=1e-4)


def test_heads_are_kept_where_that_is_asked_for() -> None:
    assert LatentKV("heads").run(dense_model(KEPT)).count == 0
    with pytest.raises(InputError, match="store"):
        LatentKV("tokens")


def test_by_default_latents_are_much_smaller() -> None:
    (reason, *_) = LatentKV().run(dense_model(KEPT)).skipped
    assert reason == "attention: its latent is 2.9 times smaller than keys and values, not over 16"
    wide = LatentKV("latents").run(dense_model(replace(KEPT, latent=80)))
    assert "1.0 times smaller than keys and values, not over 1" in wide.skipped[0]
    many = replace(KEPT, latent=8, heads=16, kv_heads=16)
    assert LatentKV().run(dense_model(many)).count == len(KEPT.attentions)


@pytest.mark.parametrize("blind", [AddAdapters(), AllocateBits(), PruneWeights()])
def test_passes_that_know_no_experts_keep_the_layers(blind: Pass) -> None:
    report = LatentKV("latents").run(dense_model(KEPT), PassContext(later=(KVCache(), blind)))
    assert report.count == 0
    assert report.skipped == [
        f"{blind.name}, behind it, knows no matmuls by experts or by heads",
    ]


def test_pools_of_int4_take_pairs_of_groups() -> None:
    int4 = PassContext(later=(KVCache("int4"),))
    report = LatentKV("latents").run(dense_model(KEPT), int4)
    assert report.count == 0
    assert "no multiples of 32" in report.skipped[0]
    wider = replace(KEPT, latent=32, head_dim=64, rotary_dim=32)
    assert LatentKV("latents").run(dense_model(wider), int4).count == len(wider.attentions)
