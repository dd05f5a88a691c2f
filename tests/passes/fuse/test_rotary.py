"""`fuse-rotary`: paged attention takes Split, head norms and rotary along."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.fuse.rotary import FuseRotary
from tests.ir.test_paged_attention import Case, make_step
from tests.support.ir_text import Array, f32, model_of, nodes_text
from tests.support.ragged import run

CASE = Case(key_dim=4, value_dim=4, window=5)
STEP = "slot_mapping, query_starts, kv_lengths, block_tables"
SIGNATURE = (
    "g (float[T,32] x, float[T,2] c, float[T,2] s, float[N,2,16,4] kp, float[N,2,16,4] vp,"
    " int32[G,T] slot_mapping, int32[M] query_starts, int32[G,B] kv_lengths,"
    " int32[G,B,P] block_tables) => (float[T,16] y, float[N,2,16,4] ko, float[N,2,16,4] vo)"
)
SHAPE = (
    "num_heads: int = 4, kv_num_heads: int = 2, scale: float = 0.5, softcap: float = 0.0,"
    " window: int = 5, group: int = 0, layer: int = 3"
    ', kv_dtype: string = "int8", query_bits: int = 8'
)
PAGED = f"y, ko, vo = optc.PagedAttention <{SHAPE}> (q, k, v, kp, vp, {STEP})"
SPLIT = "q0, k0, v = Split <axis: int = -1> (x, sizes)"


def rotate(heads: int, operand: str) -> str:
    options = "rotary_embedding_dim: int = 4, interleaved: int = 0"
    return f"optc.RotaryEmbedding <num_heads: int = {heads}, {options}> ({operand}, c, s)"


def norm(heads: int, operand: str, epsilon: float = 0.5) -> str:
    options = f"num_heads: int = {heads}, epsilon: float = {epsilon}"
    return f"optc.HeadRMSNorm <{options}> ({operand}, scale)"


CASES = {
    "rotary": f"{SPLIT}\nq = {rotate(4, 'q0')}\nk = {rotate(2, 'k0')}",
    "head norms": f"{SPLIT}\nq = {norm(4, 'q0')}\nk = {norm(2, 'k0')}",
    "rotary and head norms": (
        f"{SPLIT}\nq1 = {norm(4, 'q0')}\nk1 = {norm(2, 'k0')}"
        f"\nq = {rotate(4, 'q1')}\nk = {rotate(2, 'k1')}"
    ),
    "plain attention": "q, k, v = Split <axis: int = -1> (x, sizes)",
}


def weights() -> dict[str, Array]:
    return {"sizes": np.array([16, 8, 8]), "scale": f32(4), "w": f32(32, 8)}


def feeds() -> dict[str, Array]:
    step = make_step(CASE)
    names = STEP.split(", ")
    rows = sum(CASE.rows) + CASE.padding
    angle = f32(rows, 2)
    return {
        "x": f32(rows, 32),
        "c": np.cos(angle),
        "s": np.sin(angle),
        "kp": step.pools[0],
        "vp": step.pools[1],
        **dict(zip(names, step.inputs, strict=True)),
    }


@pytest.mark.parametrize("label", CASES)
def test_one_operator(label: str) -> None:
    model = model_of(SIGNATURE, f"{CASES[label]}\n{PAGED}", weights())
    used = {k: v for k, v in feeds().items() if k in {i.name for i in model.graph.inputs}}
    before = run(model, used)
    assert FuseRotary().run(model).details == {label: 1}
    tables = "c, s" if "rotary" in label else ", "
    scales = "scale, scale" if "norms" in label else ", "
    after = nodes_text(model).replace("epsilon = 0,", "epsilon = 0.5,")
    rotary = 4 if "rotary" in label else 0
    assert after == (
        "y, ko, vo = optc.RotaryPagedAttention <num_heads = 4, kv_num_heads = 2, scale = 0.5, "
        "softcap = 0, window = 5, group = 0, layer = 3, kv_dtype: string = int8, query_bits = 8, "
        f"rotary_embedding_dim = {rotary}, interleaved = 0, epsilon = 0.5, "
        f"key_dim = 4, value_dim = 4> (x, {tables}, {scales}, kp, vp, {STEP})"
    )
    for got, want in zip(run(model, used), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def turn(heads: int, operand: str, block: int = 4) -> str:
    return f"optc.BlockHadamard <block: int = {block}, width: int = {4 * heads}> ({operand})"


def test_rotations_of_channels_are_taken_along() -> None:
    prepared = f"{SPLIT}\nq1 = {rotate(4, 'q0')}\nk1 = {rotate(2, 'k0')}"
    nodes = f"{prepared}\nq = {turn(4, 'q1')}\nk = {turn(2, 'k1')}\n{PAGED}"
    model = model_of(SIGNATURE, nodes, weights())
    before = run(model, feeds())
    assert FuseRotary().run(model).details == {"rotary": 1}
    assert len(model.graph) == 1
    assert "key_dim = 4, value_dim = 4, hadamard = 4> (x, c, s" in nodes_text(model)
    for got, want in zip(run(model, feeds()), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_separate_sources_are_joined() -> None:
    nodes = "q0, k0, u = Split <axis: int = -1> (x, sizes)\nv = MatMul (x, w)\n"
    nodes += f"q = {rotate(4, 'q0')}\nk = {rotate(2, 'k0')}\n{PAGED}"
    model = model_of(SIGNATURE, nodes, weights())
    model.graph[-1].name = "attention"
    before = run(model, feeds())
    assert FuseRotary().run(model).count == 1
    assert "attention.qkv = Concat <axis = -1> (q0, k0, v)" in nodes_text(model)
    for got, want in zip(run(model, feeds()), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_joined_sources_are_as_wide_as_all_together() -> None:
    nodes = "q0, k0, u = Split <axis: int = -1> (x, sizes)\nv = MatMul (x, w)\n"
    nodes += f"q = {rotate(4, 'q0')}\nk = {rotate(2, 'k0')}\n{PAGED}"
    model = model_of(SIGNATURE, nodes, weights())
    widths = {"q0": 16, "k0": 8, "v": 8}
    for value in (value for node in model.graph for value in node.outputs):
        if value.name in widths:
            value.shape = ir.Shape(("T", widths[value.name]))
    FuseRotary().run(model)
    (joined,) = (node.outputs[0] for node in model.graph if node.op_type == "Concat")
    assert joined.shape == ir.Shape(("T", 32))


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (f"{SPLIT}\nq = {rotate(4, 'q0')}\nk = Tanh (k0)", "rotary on only one of q and k"),
        (
            f"{SPLIT}\nd = Tanh (c)\nq = {rotate(4, 'q0')}\nk = {rotate(2, 'k0')}".replace(
                "(k0, c, s)", "(k0, d, s)"
            ),
            "q and k have different rotary tables",
        ),
        (
            f"{SPLIT}\nq = {rotate(4, 'q0')}\nk = {rotate(2, 'k0')}".replace(
                "interleaved: int = 0> (k0", "interleaved: int = 1> (k0"
            ),
            "q and k have different rotary options",
        ),
        (
            f"{SPLIT}\nq = {norm(4, 'q0')}\nk = {norm(2, 'k0', 0.25)}",
            "the head norms of q and k have different epsilons",
        ),
        (
            f"{SPLIT}\nq = {turn(4, 'q0', 16)}\nk = {turn(2, 'k0')}",
            "q and k are rotated in different blocks",
        ),
    ],
)
def test_near_misses_are_told(nodes: str, reason: str) -> None:
    model = model_of(SIGNATURE, f"{nodes}\n{PAGED}", weights())
    before = nodes_text(model)
    report = FuseRotary().run(model)
    assert (report.count, report.skipped) == (0, [f"PagedAttention: {reason}"])
    assert nodes_text(model) == before


def test_a_norm_of_queries_alone_is_taken_along() -> None:
    nodes = f"q0, k, v = Split <axis: int = -1> (x, sizes)\nq = {norm(4, 'q0')}\n{PAGED}"
    model = model_of(SIGNATURE, nodes, weights())
    before = run(model, feeds())
    assert FuseRotary().run(model).details == {"head norms": 1}
    for got, want in zip(run(model, feeds()), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_norm_of_keys_alone_is_taken_along() -> None:
    nodes = f"q, k0, v = Split <axis: int = -1> (x, sizes)\nk = {norm(2, 'k0')}\n{PAGED}"
    model = model_of(SIGNATURE, nodes, weights())
    before = run(model, feeds())
    assert FuseRotary().run(model).details == {"head norms": 1}
    assert "epsilon = 0.5" in nodes_text(model)
    for got, want in zip(run(model, feeds()), before, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
