"""Places for scales: what is found in model families, and why other inputs have none."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from optc.ir.pipeline.base import PassReport
from optc.passes.quantize.folding.fold import fold
from optc.passes.quantize.folding.places import KINDS, NORM, PRODUCT, VALUES, Place, find_places
from optc.proof.reference.calibration import CalibrationStore
from tests.support.families import FAMILIES
from tests.support.ir_text import Array, expected, f32, model_of, nodes_text
from tests.support.models import dense_model
from tests.support.ragged import run, run_dense

SIGNATURE = "g (float[1,S,8] x) => (float[1,S,6] y)"
HEAD = "y = MatMul (h, head)"
NO_GIVER = "which takes no scale"


def scales(places: list[Place]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [np.exp(rng.standard_normal(int(one.channels.max()) + 1)) for one in places]


#: What each family of two or three layers has, and reasons for what it has not.
FOUND = {
    "llama": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 0),
    "qwen2": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 0),
    "qwen3": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 0),
    "gemma2": ({NORM: 6, PRODUCT: 3, VALUES: 3}, 0),
    "mistral": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 0),
    "phi3": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 0),
    "no positions": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 0),
    "olmo2": ({PRODUCT: 2, VALUES: 2}, 4),  # norms stand behind the layers
    "stablelm": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 0),
    "starcoder2": ({NORM: 4, VALUES: 2}, 2),  # no gate
    "sinks": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 0),
    "alibi": ({NORM: 4, VALUES: 2}, 2),
    "chunks": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 0),
    "shared keys": ({NORM: 6, PRODUCT: 3, VALUES: 1}, 2),  # two attentions read the values
    "latents": ({NORM: 8, PRODUCT: 2, VALUES: 2}, 0),
    "kept_latents": ({NORM: 8, PRODUCT: 2, VALUES: 2}, 0),
    "short convolutions": ({NORM: 6, PRODUCT: 5, VALUES: 1}, 0),
    "recurrences": ({NORM: 6, PRODUCT: 3, VALUES: 1}, 2),
    # the embedding, and what a layer's own one is multiplied by, have other readers
    "embeddings of layers": ({NORM: 4, PRODUCT: 2, VALUES: 2}, 5),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_folding_any_scale_keeps_the_models_function(family: str) -> None:
    model, report, tokens = dense_model(FAMILIES[family]), PassReport(), list(range(20))
    before = run_dense(model, tokens)
    places = find_places(model, report)
    kinds, refused = FOUND[family]
    assert Counter(one.kind for one in places) == kinds
    assert len(report.skipped) == refused + 1
    assert [one.kind for one in places] == sorted((p.kind for p in places), key=KINDS.index)
    for place, scale in zip(places, scales(places), strict=True):
        fold(place, scale, CalibrationStore())
    after = run_dense(model, tokens)
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=2e-5)


def test_the_nodes_stay_and_query_heads_share_the_scale_of_their_values() -> None:
    nodes = """
        n = RMSNormalization <axis: int = -1> (x, gamma)
        q = MatMul (n, wq)
        k = MatMul (n, wk)
        v0 = MatMul (n, wv)
        v = Add (v0, bv)
        a = optc.Attention <num_heads: int = 4, kv_num_heads: int = 2, scale: float = 0.5,\
 softcap: float = 0.0, window: int = 0> (q, k, v)
        o = MatMul (a, wo)
        h = Add (x, o)
        y = MatMul (h, head)"""
    shapes = {"wq": (8, 8), "wk": (8, 4), "wv": (8, 4), "wo": (8, 8), "head": (8, 6)}
    weights = {name: f32(*shape) for name, shape in shapes.items()}
    model = model_of(SIGNATURE, nodes, weights | {"gamma": f32(8), "bv": f32(4)})
    text, feeds = nodes_text(model), {"x": f32(1, 5, 8)}
    before = run(model, feeds)[0]
    values, norm = find_places(model, PassReport())
    assert (values.kind, norm.kind) == (VALUES, NORM)
    assert values.channels.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert [node.outputs[0].name for node in norm.readers] == ["q", "k", "v0"]
    scale = np.array([0.5, 2.0, 4.0, 8.0])
    fold(values, scale, CalibrationStore())
    initializers = model.graph.initializers
    np.testing.assert_array_equal(initializers["wv"].const_value.numpy(), weights["wv"] / scale)  # type: ignore[union-attr]
    np.testing.assert_array_equal(initializers["bv"].const_value.numpy(), f32(4) / scale)  # type: ignore[union-attr]
    wo = weights["wo"] * np.array([0.5, 2, 0.5, 2, 4, 8, 4, 8])[:, None]
    np.testing.assert_array_equal(initializers["wo"].const_value.numpy(), wo)  # type: ignore[union-attr]
    fold(norm, np.full(8, 2.0), CalibrationStore())
    np.testing.assert_array_equal(initializers["gamma"].const_value.numpy(), f32(8) / 2)  # type: ignore[union-attr]
    np.testing.assert_array_equal(initializers["wq"].const_value.numpy(), weights["wq"] * 2)  # type: ignore[union-attr]
    assert nodes_text(model) == text
    np.testing.assert_allclose(run(model, feeds)[0], before, rtol=1e-5, atol=1e-6)


def test_a_part_of_a_split_is_scaled_alone() -> None:
    nodes = f"""
        both = MatMul (x, w)
        gate, up = Split <axis: int = -1> (both, sizes)
        s = Sigmoid (gate)
        p = Mul (up, s)
        h = MatMul (p, down)
        {HEAD}"""
    sizes = {"sizes": np.array([5, 5], np.int64)}
    weights = {"w": f32(8, 10), "down": f32(5, 8), "head": f32(8, 6)}
    model = model_of(SIGNATURE, nodes, weights | sizes)
    before = run(model, {"x": f32(1, 5, 8)})[0]
    (place,) = find_places(model, PassReport())
    fold(place, np.arange(1.0, 6.0), CalibrationStore())
    now = model.graph.initializers["w"].const_value.numpy()  # type: ignore[union-attr]
    np.testing.assert_array_equal(now[:, :5], weights["w"][:, :5])
    np.testing.assert_allclose(now[:, 5:], weights["w"][:, 5:] / np.arange(1, 6), rtol=1e-6)
    np.testing.assert_allclose(run(model, {"x": f32(1, 5, 8)})[0], before, rtol=1e-5, atol=1e-6)


NORM_OF = "n = RMSNormalization <axis: int = -1> (x, gamma)"
#: Nodes before ``h``, which the head reads, and why the first of them that is a layer has no place.
REFUSED = {
    f"{NORM_OF}\nt = MatMul (n, w)\nh = Add (t, n)": (
        "its input has other readers than linear layers"
    ),
    f"{NORM_OF}\nt = MatMul (n, w)\nh = MatMul (t, w)": "its weight is used elsewhere too",
    "h = MatMul (x, w)": "its input is the model's",
    "g = Sigmoid (x)\nh = MatMul (g, w)": f"its input is given by Sigmoid, {NO_GIVER}",
    "g = Add (x, gamma)\nh = MatMul (g, w)": "its input is a sum, not given by a norm",
    f"{NORM_OF}\ng = Add (n, n)\nh = MatMul (g, w)": "its input is a sum, not given by a norm",
    f"{NORM_OF}\nt = MatMul (n, w)\nu = Mul (t, gamma)\nh = Add (u, x)": (
        "a scale or bias is used elsewhere too"
    ),
    "n = RMSNormalization <axis: int = -1> (x, one)\nh = MatMul (n, w)": (
        "its norm's scale or bias is no constant by channel"
    ),
    "n = RMSNormalization <axis: int = 1> (x, gamma)\nh = MatMul (n, w)": (
        "its norm is not over the last axis"
    ),
    "g = Sigmoid (x)\np = Mul (x, g)\nh = MatMul (p, w)": (
        "an operand of the product: no linear layer gives it"
    ),
}


@pytest.mark.parametrize("nodes", REFUSED)
def test_inputs_without_a_place_are_named_with_the_reason(nodes: str) -> None:
    weights = {"w": f32(8, 8), "head": f32(8, 6), "gamma": f32(8), "one": f32(1)}
    used = {name: array for name, array in weights.items() if name in f"{nodes} {HEAD}"}
    model = model_of(SIGNATURE, f"{nodes}\n{HEAD}", used)
    report, before = PassReport(), nodes_text(model)
    assert find_places(model, report) == []
    reasons = [line.partition(": ")[2] for line in report.skipped]
    assert REFUSED[nodes] in reasons
    assert "the head's input stays as it is" in reasons
    assert nodes_text(model) == before


LAYER = "u = MatMul (x, w)"
SIGMOID = "g = Sigmoid (x)"
OF_PRODUCT = "an operand of the product"
#: The same for the linear layer behind one side of a product.
REFUSED_FACTORS = {
    f"{LAYER}\n{SIGMOID}\np = Mul (g, u)\nz = Add (u, x)": (
        f"{OF_PRODUCT}: the linear layer that gives it has other readers"
    ),
    f"{LAYER}\n{SIGMOID}\np = Mul (g, u)\nz = MatMul (x, w)": (
        f"{OF_PRODUCT}: the weight of the linear layer is used elsewhere too"
    ),
    f"u = MatMul (x, narrow)\n{SIGMOID}\np = Mul (g, u)\nz = Sigmoid (x)": (
        f"{OF_PRODUCT}: the linear layer that gives it is not 8 channels wide"
    ),
    f"t = MatMul (x, wide)\nu, r = Split <axis: int = -1, num_outputs: int = 2> (t)\n{SIGMOID}\n"
    "p = Mul (g, u)\nz = Sigmoid (r)": (
        f"{OF_PRODUCT}: a part of a Split of unknown sizes or of several readers"
    ),
    f"t = MatMul (x, wide)\nu, r = Split <axis: int = -1> (t, halves)\n{SIGMOID}\n"
    "p = Mul (g, u)\nz = Add (u, r)": (
        f"{OF_PRODUCT}: a part of a Split of unknown sizes or of several readers"
    ),
    f"t = MatMul (x, wide)\nu, r = Split <axis: int = -1> (t, halves)\n{SIGMOID}\n"
    "p = Mul (g, u)\nq = Sigmoid (t)\nv = MatMul (q, tall)\nz = Add (r, v)": (
        f"{OF_PRODUCT}: the linear layer that gives it has other readers"
    ),
    f"t = MatMul (x, wide)\nu, r = Split <axis: int = -1> (t, uneven)\n{SIGMOID}\n"
    "p = Mul (g, u)\nz = Sigmoid (x)": (
        f"{OF_PRODUCT}: the linear layer that gives it is not 8 channels wide"
    ),
}


@pytest.mark.parametrize("nodes", REFUSED_FACTORS)
def test_products_without_a_place_are_named_with_the_reason(nodes: str) -> None:
    weights = {"w": f32(8, 8), "head": f32(8, 6), "down": f32(8, 8), "narrow": f32(8, 1)}
    weights |= {"wide": f32(8, 16), "tall": f32(16, 8)}
    weights |= {"halves": np.array([8, 8], np.int64), "uneven": np.array([1, 15], np.int64)}
    text = f"{nodes}\nd = MatMul (p, down)\nh = Add (d, z)\n{HEAD}"
    used = {name: array for name, array in weights.items() if name in text}
    report = PassReport()
    assert find_places(model_of(SIGNATURE, text, used), report) == []
    assert REFUSED_FACTORS[nodes] in [line.partition(": ")[2] for line in report.skipped]


@pytest.mark.parametrize("axis", ["", "<axis: int = -1>", "<axis: int = 2>"])
def test_norms_over_the_last_axis(axis: str) -> None:
    nodes = f"n = RMSNormalization {axis} (x, gamma)\nh = MatMul (n, w)\n{HEAD}"
    weights = {"gamma": f32(8), "w": f32(8, 8), "head": f32(8, 6)}
    (place,) = find_places(model_of(SIGNATURE, nodes, weights), PassReport())
    assert place.kind == NORM


def test_a_bias_behind_the_norm_is_scaled_with_it() -> None:
    nodes = f"""
        n = LayerNormalization <axis: int = -1> (x, gamma)
        b = Add (n, beta)
        h = MatMul (b, w)
        {HEAD}"""
    weights = {"gamma": f32(8), "beta": f32(8, seed=1), "w": f32(8, 8), "head": f32(8, 6)}
    model = model_of(SIGNATURE, nodes, weights)
    before = run(model, {"x": f32(1, 5, 8)})[0]
    (place,) = find_places(model, PassReport())
    fold(place, np.arange(1.0, 9.0), CalibrationStore())
    now = model.graph.initializers["beta"].const_value.numpy()  # type: ignore[union-attr]
    np.testing.assert_allclose(now, weights["beta"] / np.arange(1, 9), rtol=1e-6)
    np.testing.assert_allclose(run(model, {"x": f32(1, 5, 8)})[0], before, rtol=1e-5, atol=1e-6)
    assert nodes_text(model) == expected(
        """
        n = LayerNormalization <axis = -1> (x, gamma)
        b = Add (n, beta)
        h = MatMul (b, w)
        y = MatMul (h, head)"""
    )
