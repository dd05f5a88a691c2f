"""Attention spelled out in standard operators becomes ``optc::Attention`` and computes the same."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.dataflow import dims
from optc.passes.canonicalize.find_attention import FindAttention
from tests.passes.canonicalize.texts import after, evaluate, exported, unchanged, wrong_shapes
from tests.support.ir_text import Array, expected, f32

S = 13
SIGNATURE = (
    "(int64[B,S] ids, int64[B,S] positions, float[B,4,S,8] q, float[B,4,S,8] k, float[B,4,S,6] v)"
    " => (float[B,4,S,6] y)"
)
#: Places of rows and columns from the number of tokens.
PLACES = """
    tokens_1 = Shape <start: int = 1, end: int = 2> (ids)
    tokens = Squeeze (tokens_1)
    j = Range (zero, tokens, one)
    i = Unsqueeze (j, axis_1)
    d = Sub (i, j)
    causal = GreaterOrEqual (d, zero)
"""
PRODUCTS = """
    kt = Transpose <perm: ints = [0, 1, 3, 2]> (k)
    p0 = MatMul (q, kt)
    p = Mul (p0, scale)
"""
REST = "w = Softmax <axis: int = -1> (x)\ny = MatMul (w, v)"
NUMBERS = {
    "zero": np.array(0),
    "one": np.array(1),
    "axis_1": np.array([1]),
    "scale": np.array(0.25, np.float32),
    "low": np.array(-3e38, np.float32),
    "nothing": np.array(0, np.float32),
    "size": np.array(600),
    "three": np.array(3),
    "reach": np.array(8),
    "width": np.array(9),
    "turned": np.array(-1, np.float32),
    "slopes": (2.0 ** -np.arange(1.0, 5.0)).astype(np.float32)[:, None, None],
    "eleven": np.array(11),
    "buckets": f32(14, 4),
    "table": (np.tri(40) - np.tri(40, k=-11)).astype(np.float32)[None, None],
    "starts": np.array([0, 0]),
    "axes": np.array([2, 3]),
    "axes_12": np.array([1, 2]),
    "minus": np.array(-10000, np.float32),
    "unit": np.array(1, np.float32),
}
#: Scores ``x`` made of products ``p``, and what is found.
SCORES = {
    "added": (f"{PLACES}b = Where (causal, nothing, low)\n{PRODUCTS}x = Add (p, b)", "full"),
    "chosen": (f"{PLACES}{PRODUCTS}x = Where (causal, p, low)", "full"),
    "small window": (
        f"{PLACES}n = Less (d, three)\nm = And (causal, n)\n{PRODUCTS}x = Where (m, p, low)",
        "window 3",
    ),
    "large window": (
        f"{PLACES}n = Less (d, size)\nm = And (causal, n)\n{PRODUCTS}x = Where (m, p, low)",
        "window 600",
    ),
    "large window, of both bounds": (
        f"{PLACES}n = LessOrEqual (d, size)\nm = And (causal, n)\n{PRODUCTS}x = Where (m, p, low)",
        "window 601",
    ),
    "a window as long as a probe": (
        f"{PLACES}n = Less (d, width)\nm = And (causal, n)\n{PRODUCTS}x = Where (m, p, low)",
        "window 9",
    ),
    "a distance as long as a probe's": (
        f"{PLACES}n = LessOrEqual (d, reach)\nm = And (causal, n)\n{PRODUCTS}x = Where (m, p, low)",
        "window 9",
    ),
    "large chunk": (
        f"{PLACES}c = Div (j, size)\nr = Unsqueeze (c, axis_1)\ne = Equal (r, c)\n"
        f"m = And (causal, e)\n{PRODUCTS}x = Where (m, p, low)",
        "chunk 600",
    ),
    "slopes": (
        f"{PLACES}b = Where (causal, nothing, low)\nf = Cast <to: int = 1> (j)\n"
        f"l = Mul (slopes, f)\n{PRODUCTS}a = Add (p, l)\nx = Add (a, b)",
        "full, slopes",
    ),
    "biases by distance": (
        f"{PLACES}b = Where (causal, nothing, low)\nn = Max (d, zero)\nm = Min (n, eleven)\n"
        f"r = Gather (buckets, m)\nl = Transpose <perm: ints = [2, 0, 1]> (r)\n"
        f"{PRODUCTS}a = Add (p, l)\nx = Add (a, b)",
        "full, distances",
    ),
    "a table": (
        f"stops = Concat <axis: int = 0> (tokens_1, tokens_1)\n"
        f"t = Slice (table, starts, stops, axes)\n{PRODUCTS}m = Mul (p, t)\nu = Sub (unit, t)\n"
        f"b = Mul (u, minus)\nx = Add (m, b)",
        "window 11",
    ),
}
#: Those whose nodes count tokens themselves.
COUNT = "tokens_1 = Shape <start: int = 1, end: int = 2> (ids)\n"


def model_of(scores: str, signature: str = SIGNATURE, rest: str = REST) -> ir.Model:
    nodes = f"{scores}\n{rest}"
    if "tokens_1 =" not in nodes and "tokens_1" in nodes:
        nodes = COUNT + nodes
    used = {
        name: array for name, array in NUMBERS.items() if f"{name}," in nodes or f"{name})" in nodes
    }
    return exported(signature, nodes, constants=used)


def feeds(kv_heads: int = 4) -> Mapping[str, Array]:
    rows = np.broadcast_to(np.arange(S), (2, S))
    return {
        "ids": rows + 3,
        "positions": rows.copy(),
        "q": f32(2, 4, S, 8),
        "k": f32(2, kv_heads, S, 8),
        "v": f32(2, kv_heads, S, 6),
    }


def found(model: ir.Model) -> ir.Node:
    return next(node for node in model.graph if node.domain == "optc")


@pytest.mark.parametrize("name", SCORES)
def test_what_is_found_computes_the_same(name: str) -> None:
    scores, label = SCORES[name]
    model = model_of(scores)
    report = FindAttention().run(model)
    assert report.details == {f"spelled out, {label}": 1}, report.skipped
    assert found(model).attributes["scale"].as_float() == 0.25
    assert wrong_shapes(model, feeds()) == []
    assert unchanged(model_of(scores), feeds(), FindAttention()) < 1e-5


@pytest.mark.parametrize(
    ("sizes", "stated"),
    [
        ([0, -1, 4, 6], ["B", "M*1", 4, 6]),
        ([0, 0, 6, 4], ["B", "M", 6, 4]),
        ([0, -1, 2, 6], ["B", "M*2", 2, 6]),
        ([0, -1, 6], ["B", "M*4", 6]),
    ],
)
def test_shapes_behind_a_mask_that_is_cut_out_of_a_table(
    sizes: list[int], stated: list[str | int]
) -> None:
    """They are said of as many tokens as both have, M, and hold of the tokens."""
    rest = (
        "w = Softmax <axis: int = -1> (x)\nz = MatMul (w, v)\n"
        "h = Transpose <perm: ints = [0, 2, 1, 3]> (z)\n"
        f"to = Constant <value_ints: ints = {sizes}> ()\nr = Reshape (h, to)\ny = Neg (r)"
    )
    model = model_of(SCORES["a table"][0], rest=rest)
    of = {str(value.name): value for node in model.graph for value in node.outputs}
    shapes = {"z": ["B", 4, "M", 6], "h": ["B", "M", 4, 6], "r": stated, "y": stated}
    for name, shape in shapes.items():
        of[name].shape = ir.Shape(shape)
    FindAttention().run(model)
    wrong = wrong_shapes(model, feeds())
    assert [line for line in wrong if not line.startswith("y ")] == []
    assert dims(of["h"]) == ["B", "S", 4, 6]
    if sizes == [0, -1, 4, 6]:
        assert dims(of["r"]) == ["B", "S", 4, 6]


def test_text() -> None:
    text, _ = after(model_of(SCORES["slopes"][0]), FindAttention())
    swap = "Transpose <perm: ints = [0, 2, 1, 3]>"
    assert text == expected(f"""
        t0 = {swap} (q)
        t1 = Reshape (t0, to_0_0_rest)
        t2 = {swap} (k)
        t3 = Reshape (t2, to_0_0_rest)
        t4 = {swap} (v)
        t5 = Reshape (t4, to_0_0_rest)
        t6 = optc.Attention <num_heads = 4, kv_num_heads = 4, scale = 0.25, softcap = 0,\\
         window = 0> (t1, t3, t5, , alibi_slopes)
        t7 = Reshape (t6, to_0_0_4_6)
        y = {swap} (t7)
        """)


def test_biases_have_as_many_entries_as_differ() -> None:
    model = model_of(SCORES["biases by distance"][0])
    FindAttention().run(model)
    given = found(model).inputs[5]
    assert given is not None
    assert given.const_value is not None
    biases = NUMBERS["buckets"][:12].T
    np.testing.assert_allclose(given.const_value.numpy(), biases - biases[:, :1], atol=1e-6)


def test_heads_and_sequences_in_one_axis() -> None:
    """As torch.bmm takes them: [B*H, S, D]."""
    scores = f"""
        {PLACES}
        b = Where (causal, nothing, low)
        batch = Shape <start: int = 0, end: int = 1> (ids)
        four = Constant <value_ints: ints = [4]> ()
        rest = Constant <value_ints: ints = [-1]> ()
        eight = Constant <value_ints: ints = [8]> ()
        six = Constant <value_ints: ints = [6]> ()
        both = Mul (batch, four)
        q_shape = Concat <axis: int = 0> (both, rest, eight)
        v_shape = Concat <axis: int = 0> (both, rest, six)
        s_shape = Concat <axis: int = 0> (batch, four, tokens_1, tokens_1)
        m_shape = Concat <axis: int = 0> (both, tokens_1, tokens_1)
        y_shape = Concat <axis: int = 0> (batch, four, tokens_1, six)
        q3 = Reshape (q, q_shape)
        k3 = Reshape (k, q_shape)
        v3 = Reshape (v, v_shape)
        kt = Transpose <perm: ints = [0, 2, 1]> (k3)
        p0 = MatMul (q3, kt)
        p = Mul (p0, scale)
        p4 = Reshape (p, s_shape)
        a = Add (p4, b)
        x = Reshape (a, m_shape)
        w = Softmax <axis: int = -1> (x)
        z = MatMul (w, v3)"""
    model = model_of(scores, rest="y = Reshape (z, y_shape)")
    shapes = {"q3": 8, "k3": 8, "v3": 6, "kt": 0, "p0": 0, "p": 0, "x": 0, "w": 0, "z": 6}
    for node in model.graph:
        value = node.outputs[0]
        if value.name in shapes and value.name != "kt":
            value.shape = ir.Shape(["4*B", "S", shapes[value.name] or "S"])
        elif value.name in ("p4", "a"):
            value.shape = ir.Shape(["B", 4, "S", "S"])
        elif value.name == "y":
            value.shape = ir.Shape(["B", 4, "S", 6])
    report = FindAttention().run(model)
    assert report.details == {"spelled out, full": 1}, report.skipped
    before = model_of(scores, rest="y = Reshape (z, y_shape)")
    want, got = evaluate(before, feeds()), evaluate(model, feeds())
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_repeated_keys_and_values_are_shared() -> None:
    signature = SIGNATURE.replace(
        "float[B,4,S,8] k, float[B,4,S,6] v", "float[B,2,S,8] k, float[B,2,S,6] v"
    )
    repeat = "".join(
        f"""
        {x}5 = Unsqueeze ({x}, two_axis)
        {x}_batch = Shape <start: int = 0, end: int = 1> ({x})
        {x}_wide = Concat <axis: int = 0> ({x}_batch, two, two, tokens_1, {size})
        {x}e = Expand ({x}5, {x}_wide)
        {x}_four = Concat <axis: int = 0> ({x}_batch, four, tokens_1, {size})
        {x}r = Reshape ({x}e, {x}_four)"""
        for x, size in (("k", "eight"), ("v", "six"))
    )
    constants = "".join(
        f"{name} = Constant <value_ints: ints = [{value}]> ()\n"
        for name, value in (("two", 2), ("four", 4), ("eight", 8), ("six", 6), ("two_axis", 2))
    )
    scores = (
        f"{constants}{PLACES}{repeat}{PRODUCTS.replace('(k)', '(kr)')}x = Where (causal, p, low)"
    )
    model = model_of(scores, signature, REST.replace(", v)", ", vr)"))
    for node in model.graph:
        if node.outputs[0].name in ("kr", "vr"):
            node.outputs[0].shape = ir.Shape(
                ["B", 4, "S", 8 if node.outputs[0].name == "kr" else 6]
            )
    report = FindAttention().run(model)
    assert report.details == {"spelled out, full": 1}, report.skipped
    assert found(model).attributes["kv_num_heads"].as_int() == 2
    before = model_of(scores, signature, REST.replace(", v)", ", vr)"))
    want, got = evaluate(before, feeds(2)), evaluate(model, feeds(2))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_standard_attentions_mask_is_probed_too() -> None:
    nodes = f"""{PLACES}
        n = Less (d, size)
        m = And (causal, n)
        y = Attention <scale: float = 0.25> (q, k, v, m)"""
    model = model_of(nodes, rest="")
    assert FindAttention().run(model).details == {"window 600": 1}
    assert unchanged(model_of(nodes, rest=""), feeds(), FindAttention()) < 1e-5
    both = nodes.replace("<scale", "<is_causal: int = 1, scale").replace(
        "(q, k, v, m)", "(q, k, v, n)"
    )
    assert FindAttention().run(model_of(both, rest="")).details == {"window 600": 1}


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        (f"{PRODUCTS}x = Identity (p)", "a row sees tokens behind it"),
        (
            f"{PLACES}{PRODUCTS}t = Abs (p)\nx = Where (causal, t, low)",
            "0 products of computed values lie behind its softmax",
        ),
        (
            f"{PLACES}{PRODUCTS}t = Max (p, nothing)\nx = Where (causal, t, low)",
            "not proportional to products",
        ),
        (
            f"{PLACES}r = Unsqueeze (ids, axes_12)\nc = Equal (r, three)\n"
            f"s = Cast <to: int = 1> (c)\n{PRODUCTS}a = Add (p, s)\nx = Where (causal, a, low)",
            "its mask depends on the tokens",
        ),
        (
            f"{PLACES}{PRODUCTS}t = Mul (p, turned)\nx = Where (causal, t, low)",
            "its scores are -0.25 times products",
        ),
        (
            f"{PLACES}g = MatMul (v, v2)\n{PRODUCTS}t = Add (p, g)\nx = Where (causal, t, low)",
            "2 products of computed values",
        ),
    ],
)
def test_near_misses_say_why(scores: str, reason: str) -> None:
    signature = SIGNATURE.replace("float[B,4,S,6] v)", "float[B,4,S,6] v, float[B,4,6,S] v2)")
    report = FindAttention().run(model_of(scores, signature))
    assert report.count == 0
    (line,) = report.skipped
    assert reason in line


def test_keys_of_other_tokens_are_refused() -> None:
    signature = SIGNATURE.replace("[B,4,S,8] k, float[B,4,S,6]", "[B,4,T,8] k, float[B,4,T,6]")
    report = FindAttention().run(model_of(f"{PRODUCTS}x = Identity (p)", signature))
    assert report.skipped[0].endswith("its keys are of other tokens")


@pytest.mark.parametrize(
    "nodes",
    [
        "y = Softmax <axis: int = -1> (x)",
        "s = Softmax <axis: int = 1> (x)\nt = Transpose <perm: ints = [0, 2, 1]> (x)\n"
        "y = MatMul (s, t)",
    ],
)
def test_other_softmaxes_are_left_alone(nodes: str) -> None:
    model = exported("(float[B,S,8] x) => (float[B,S,N] y)", nodes)
    report = FindAttention().run(model)
    assert (report.count, report.skipped) == (0, [])
