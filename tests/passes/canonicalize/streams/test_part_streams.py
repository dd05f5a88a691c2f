"""`part-streams` on text, and by numbers against the graph before."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.streams.part_streams import PartStreams
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

SIGNATURE = "(float[B,S,6] x, float[B,S,6] z, float[B,S,4] c) => (float[B,S,6] y)"
CONSTANTS = {
    "first": np.array(0),
    "second": np.array(1),
    "front": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "three": np.array([3]),
    "rows": np.array([[1]]),
    "last": np.array([-1]),
    "square": np.array([0, 0, 2, 2]),
    "flat": np.array([0, 0, 12]),
    "half": np.array(0.5, np.float32),
    "twice": np.array([2, 1, 1, 1]),
}
WEIGHTS = {"w": f32(6, 6)}
STACK = """
    a = Unsqueeze (x, front) b = Unsqueeze (z, front) s = Concat <axis: int = 0> (a, b)
    """
#: A mixture of the streams by a matrix of each token.
MIX = """
    m = Reshape (c, square) t = Transpose <perm: ints = [0, 1, 3, 2]> (m)
    l = Transpose <perm: ints = [1, 2, 3, 0]> (s) p = MatMul (l, t)
    q = Transpose <perm: ints = [3, 0, 1, 2]> (p) r = Add (q, s)
    """
FEEDS = {"x": f32(2, 3, 6), "z": f32(2, 3, 6, seed=1), "c": f32(2, 3, 4, seed=2)}


def model(nodes: str, signature: str = SIGNATURE) -> ir.Model:
    made = exported(signature, nodes, WEIGHTS, CONSTANTS)
    for value in (value for node in made.graph for value in node.outputs):
        shape = value.shape
        if shape is not None and len(shape) == 4 and shape[1] not in ("B", "S"):
            value.shape = ir.Shape([2, "B", "S", 6])  # which the exporter knows
    return made


def test_one_of_a_mixture() -> None:
    text, report = after(model(f"{STACK} {MIX} y = Gather (r, second)"), PartStreams())
    assert text == expected("""
        t0 = Slice (c, column_2, column_3, last_axis)
        t1 = Slice (c, column_3, column_4, last_axis)
        t2 = Mul (x, t0)
        t3 = Mul (z, t1)
        t4 = Add (t2, t3)
        y = Add (t4, z)
        """)
    assert report.details == {"value": 1}


@pytest.mark.parametrize(
    "nodes",
    [
        f"{STACK} {MIX} y = Gather (r, first)",
        f"{STACK} {MIX} y = ReduceMean <keepdims: int = 0> (r, front)",
        f"{STACK} h = Mul (s, half) d = MatMul (h, w) y = ReduceSum <keepdims: int = 0> (d, front)",
        # some streams are changed
        f"{STACK} o = Slice (s, one, two, front) u = Add (o, x) n = ScatterND (s, rows, u) "
        "y = ReduceSum <keepdims: int = 0> (n, front)",
        # one value for all of them, and a factor of each
        f"{STACK} i = Unsqueeze (x, front) e = Tile (i, twice) "
        "k = Slice (c, one, three, last) f = Transpose <perm: ints = [2, 0, 1]> (k) "
        "g = Unsqueeze (f, last) j = Mul (e, g) n = Add (j, s) y = Gather (n, second)",
        # a norm of each
        f"{STACK} v = Mul (s, s) n = ReduceMean (v, last) o = Sqrt (n) d = Div (s, o) "
        "y = Gather (d, first)",
    ],
    ids=["one", "mean", "layer", "some", "factors", "norms"],
)
def test_streams_are_values_of_their_own(nodes: str) -> None:
    assert unchanged(model(nodes), FEEDS, PartStreams()) < 1e-6
    found = model(nodes)
    _, report = after(found, PartStreams())
    assert report.count == 1
    assert all(
        value.shape is None or len(value.shape) < 4 for n in found.graph for value in n.outputs
    )


def test_streams_behind_one_another() -> None:
    signature = SIGNATURE.replace("float[B,S,6] y", "float[B,S,12] y")
    nodes = """
        a = Unsqueeze (x, two) b = Unsqueeze (z, two) s = Concat <axis: int = 2> (a, b)
        y = Reshape (s, flat)
        """
    text, _ = after(model(nodes, signature), PartStreams())
    assert text == expected("y = Concat <axis = -1> (x, z)")
    assert unchanged(model(nodes, signature), FEEDS, PartStreams()) == 0.0


@pytest.mark.parametrize(
    "nodes",
    [
        # heads, which nothing stacked
        "m = Reshape (c, square) h = Mul (m, half) g = Gather <axis: int = 2> (h, first) "
        "e = Concat <axis: int = -1> (g, g, g) y = Add (e, x)",
        # something that is no operator of each stream
        f"{STACK} u = CumSum (s, first) y = Gather (u, second)",
    ],
)
def test_others_stay(nodes: str) -> None:
    assert PartStreams().run(model(nodes)).count == 0
