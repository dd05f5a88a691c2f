"""`fold-recurrences` on text: heads around linear attention are folded, the same numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.mixers.fold_recurrences import FoldRecurrences
from tests.passes.canonicalize.texts import after, exported
from tests.support import oracle
from tests.support.ir_text import Array, expected, f32
from tests.support.ragged import run

SIGNATURE = (
    "(float[2,S,8] q, float[2,S,8] k, float[2,S,24] v, float[2,S,4] a, float[2,S,4] b)"
    " => (float[2,S,24] y)"
)
CONSTANTS = {
    "keys": np.array([2, -1, 2, 4]),
    "values": np.array([2, -1, 4, 6]),
    "flat": np.array([-1, 6]),
    "whole": np.array([2, -1, 24]),
    "heads_last": np.array([2, -1, 6, 4]),
    "skip": f32(4, 1),
    "axis": np.array([-1]),
}
ATTEND = """
    q4 = Reshape (q, keys) k4 = Reshape (k, keys) v4 = Reshape (v, values)
    o = optc.LinearAttention <scale: float = 0.5, delta: int = 1> (q4, k4, v4, a, b)"""
CALL = (
    "optc.LinearAttention <num_heads = 4, key_heads = 2, key_dim = 4, value_dim = 6, delta = 1, "
    "scale = 0.5> (q, k, v, a, b)"
)
#: What goes on by heads behind it, and what becomes of that.
BEHIND = {
    "nothing": ("y = Reshape (o, whole)", f"y = {CALL}"),
    "a norm of heads in one axis, gated": (
        """f = Reshape (o, flat) n = RMSNormalization <axis: int = -1, epsilon: float = 1e-5> (f, w)
        g = Reshape (v4, flat) h = Mul (n, g) y = Reshape (h, whole)""",
        f"""t0 = {CALL}
t1 = optc.HeadRMSNorm <num_heads = 4, epsilon = 1e-05> (t0, w)
y = Mul (t1, v)""",
    ),
    "a gate of another projection, all its heads in one axis": (
        """f = Reshape (o, flat) g = Reshape (v, flat) n = Mul (f, g) y = Reshape (n, whole)""",
        f"""t0 = {CALL}
y = Mul (t0, v)""",
    ),
    "a share of the values of each head": (
        "m = Mul (skip, v4) h = Add (o, m) y = Reshape (h, whole)",
        f"""t0 = {CALL}
t1 = Mul (skip.heads, v)
y = Add (t0, t1)""",
    ),
}


def model(nodes: str) -> ir.Model:
    text = ATTEND + nodes
    used = {name: value for name, value in CONSTANTS.items() if name in text}
    weights = {"w": f32(6)} if ", w)" in text else {}
    found = exported(SIGNATURE, text, weights, used)
    sizes = {"q4": (2, 4), "k4": (2, 4), "v4": (4, 6), "o": (4, 6), "m": (4, 6)}
    for node in found.graph:
        for value in node.outputs:
            name = str(value.name)
            if name in sizes or (name == "h" and "skip" in text):
                value.shape = ir.Shape([2, "S", *sizes.get(name, (4, 6))])
            elif name in ("f", "g", "n", "h"):
                value.shape = ir.Shape(["8*S", 6])
            value.type = ir.TensorType(ir.DataType.FLOAT)
    return found


def wanted(kind: str, given: dict[str, Array], weight: Array, skip: Array) -> Array:
    rows = []
    for b in range(2):
        q, k, v = (given[n][b].reshape(5, -1, d) for n, d in (("q", 4), ("k", 4), ("v", 6)))
        o, _ = oracle.linear_attention(q, k, v, given["a"][b], given["b"][b], 0.5, 1)
        if "norm" in kind:
            o = oracle.rms_norm(o, weight, 1e-5) * v
        elif "share" in kind:
            o = o + skip * v
        elif "gate" in kind:
            o = o * v
        rows.append(o.reshape(5, 24))
    return np.array(rows)


@pytest.mark.parametrize("kind", BEHIND)
def test_what_goes_on_by_heads(kind: str) -> None:
    nodes, text = BEHIND[kind]
    folded = model(nodes)
    found, report = after(folded, FoldRecurrences())
    assert found == expected(text)
    assert report.details == {"linear attention": 1}
    given = {n: f32(2, 5, w) for n, w in (("q", 8), ("k", 8), ("v", 24), ("a", 4), ("b", 4))}
    given["a"] = -np.abs(given["a"])
    result = run(folded, given)[0]
    want = wanted(kind, given, f32(6), CONSTANTS["skip"])
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


def test_heads_that_no_reshape_gives_stay() -> None:
    nodes = ATTEND.replace("v4 = Reshape (v, values)", "v6 = Reshape (v, heads_last)") + (
        " y = Reshape (o, whole)"
    )
    nodes = nodes.replace(
        "o = optc", "v4 = Transpose <perm: ints = [0, 1, 3, 2]> (v6) o = optc"
    ).replace(ATTEND, "")
    used = {name: value for name, value in CONSTANTS.items() if name in nodes}
    graph = exported(SIGNATURE, nodes, {}, used)
    text, report = after(graph, FoldRecurrences())
    assert "Transpose" in text
    assert report.details == {}
    assert any("no reshape of a projection gives" in reason for reason in report.skipped)


BY_KEY = """
    q4 = Reshape (q, keys) k4 = Reshape (k, keys) v4 = Reshape (v, values) a4 = Reshape (c, fours)
    d4 = Mul (rates, a4)
    o = optc.LinearAttention <scale: float = 0.5, delta: int = 1> (q4, k4, v4, d4, b)
    y = Reshape (o, whole)"""


def by_key(size: int) -> ir.Model:
    """Decays of each head's keys, of a projection of so many numbers a head."""
    signature = SIGNATURE.replace("float[2,S,4] a", f"float[2,S,{4 * size}] c")
    used = {name: CONSTANTS[name] for name in ("keys", "values", "whole")}
    used |= {"fours": np.array([2, -1, 4, size]), "rates": -np.abs(f32(1, 1, 4, 1))}
    found = exported(signature, BY_KEY, {}, used)
    sizes = {"q4": (2, 4), "k4": (2, 4), "v4": (4, 6), "o": (4, 6)}
    for node in found.graph:
        for value in node.outputs:
            if value.name != "y":
                value.shape = ir.Shape([2, "S", *sizes.get(str(value.name), (4, size))])
            value.type = ir.TensorType(ir.DataType.FLOAT)
    return found


def test_decays_of_keys_are_folded_likewise() -> None:
    folded = by_key(4)
    text, report = after(folded, FoldRecurrences())
    call = CALL.replace("(q, k, v, a, b)", "(q, k, v, t0, b)")
    call = call.replace("scale = 0.5", "scale = 0.5, decays = 4")
    assert text == expected(f"t0 = Mul (rates.heads, c)\ny = {call}")
    assert report.details == {"linear attention": 1}
    given = {n: f32(2, 5, w) for n, w in (("q", 8), ("k", 8), ("v", 24), ("c", 16), ("b", 4))}
    given["c"] = np.abs(given["c"])
    result = run(folded, given)[0]
    for b in range(2):
        q, k, v = (given[n][b].reshape(5, -1, d) for n, d in (("q", 4), ("k", 4), ("v", 6)))
        decay = -np.abs(f32(1, 1, 4, 1))[0] * given["c"][b].reshape(5, 4, 4)
        want, _ = oracle.linear_attention(q, k, v, decay, given["b"][b], 0.5, 1)
        np.testing.assert_allclose(result[b], want.reshape(5, 24), rtol=1e-4, atol=1e-4)


def test_decays_of_something_else_stay() -> None:
    _, report = after(by_key(2), FoldRecurrences())
    assert report.details == {}
    assert any("decays of keys that no reshape gives" in reason for reason in report.skipped)


SCAN = (
    "(float[2,S,4] q, float[2,S,4] k, float[2,S,6] v, float[2,S,6] a) => (float[2,S,6] y)",
    "y = optc.SelectiveScan (q, k, v, a, rates)",
)


def test_a_selective_scan_is_linear_attention_of_one_head() -> None:
    rates = -np.abs(f32(4, 6))
    folded = exported(*SCAN, {}, {"rates": rates})
    text, report = after(folded, FoldRecurrences())
    assert text == expected(
        "y = optc.LinearAttention <num_heads = 1, key_heads = 1, key_dim = 4, value_dim = 6, "
        "delta = 0, scale = 1> (q, k, v, a, , rates)"
    )
    assert report.details == {"selective scan": 1}
    given = {n: f32(2, 5, w) for n, w in (("q", 4), ("k", 4), ("v", 6), ("a", 6))}
    given["a"] = np.abs(given["a"])
    result = run(folded, given)[0]
    for b in range(2):
        q, k, v, a = (given[n][b].reshape(5, 1, -1) for n in "qkva")
        want, _ = oracle.linear_attention(q, k, v, a, None, 1.0, 0, rates=rates)
        np.testing.assert_allclose(result[b], want[:, 0], rtol=1e-4, atol=1e-4)


def test_a_scan_of_unknown_sizes_stays() -> None:
    folded = exported(*SCAN, {}, {"rates": -np.abs(f32(5, 6))})
    _, report = after(folded, FoldRecurrences())
    assert any("sizes are not known" in reason for reason in report.skipped)


def test_a_model_without_them_is_left_alone() -> None:
    nodes = "v4 = Reshape (v, values) y = Reshape (v4, whole)"
    used = {name: CONSTANTS[name] for name in ("values", "whole")}
    before, _ = after(exported(SIGNATURE, nodes, {}, used))
    assert after(exported(SIGNATURE, nodes, {}, used), FoldRecurrences())[0] == before
