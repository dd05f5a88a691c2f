"""Attention in standard operators, however it is put together; and what is nothing like one."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.spelled.match import Spelled, match

#: Of two sequences with four heads of queries; keys are of size 8, values of size 6.
DIMS = {
    "q": "B,4,S,8",
    "k": "B,4,S,8",
    "v": "B,4,S,6",
    "ks": "B,S,4,8",
    "k2": "B,2,S,8",
    "v2": "B,2,S,6",
    "k25": "B,2,1,S,8",
    "v25": "B,2,1,S,6",
    "k2e": "B,2,2,S,8",
    "v2e": "B,2,2,S,6",
    "kr": "B,4,S,8",
    "vr": "B,4,S,6",
    "kt": "B,4,8,S",
    "kd": "B,4,8,S",
    "q3": "R,S,8",
    "k3": "R,S,8",
    "v3": "R,S,6",
    "kt3": "R,8,S",
    "p": "B,4,S,S",
    "p3": "R,S,S",
    "x": "B,4,S,S",
    "x3": "R,S,S",
    "w": "B,4,S,S",
    "w3": "R,S,S",
    "y": "B,4,S,6",
    "y3": "R,S,6",
    "ya": "B,4,S,6",
    "yb": "B,4,S,6",
    "yf": "B,S,24",
    "l": "B,4,S,S",
    "o": "B,4,S,S",
    "h": "B,4,S,8",
    "r": "B,4,S,S",
}
CONSTANTS = {
    "two": "int64[1] two = {2}",
    "back": "int64[1] back = {-3}",
    "one": "int64[1] one = {1}",
}


def softmax_of(nodes: str, changed: dict[str, str] | None = None) -> ir.Node:
    """The softmax among nodes whose values have the shapes `DIMS`."""
    shapes = {**DIMS, **(changed or {})}
    read = f" {nodes} ".replace("(", " ").replace(")", " ").replace(",", " ").split()
    made = {word for word, then in pairwise(read) if then == "="}
    used = [name for name in shapes if name in read]
    given = ", ".join(f"float[{shapes[n]}] {n}" for n in used if n not in made)
    inner = [f"float[{shapes[n]}] {n}" for n in used if n in made]
    inner += [text for name, text in CONSTANTS.items() if name in read]
    zeros = ", ".join(["0"] * 8)
    inner += [f"float[8,1] weight = {{{zeros}}}"] if "weight" in read else []
    inner += ["float[1,1] table = {0}"] if "table" in read else []
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 23, "other" : 1]> g ({given}, int64[N] shape) => '
        f"(float out) <{', '.join(inner)}> {{ {nodes} out = ReduceSum (last) }}"
    )
    return next(node for node in model.graph if node.op_type == "Softmax")


def found(nodes: str, changed: dict[str, str] | None = None) -> Spelled:
    answer = match(softmax_of(nodes, changed))
    assert isinstance(answer, Spelled), answer
    return answer


def names(answer: Spelled) -> tuple[str | None, ...]:
    """Queries, keys, values and results."""
    values = (answer.q, answer.k[0], answer.v, *answer.results)
    return tuple(value.name for value in values)


#: Ways to spell each part: nodes, what the next part reads, and the value that is found.
KEYS = {
    "turned": ("kt = Transpose <perm = [0, 1, 3, 2]> (k)", "k", None),
    "tokens first": ("kt = Transpose <perm = [0, 2, 3, 1]> (ks)", "ks", [0, 2, 1, 3]),
    "shared by heads": (
        "k25 = Unsqueeze (k2, two) k2e = Expand (k25, shape) kr = Reshape (k2e, shape) "
        "kt = Transpose <perm = [0, 1, 3, 2]> (kr)",
        "k2",
        None,
    ),
    "repeated otherwise": (
        "k25 = Unsqueeze (k2, one) k2e = Expand (k25, shape) kr = Reshape (k2e, shape) "
        "kt = Transpose <perm = [0, 1, 3, 2]> (kr)",
        "kr",
        None,
    ),
}
VALUES = {
    "plain": ("", "v", "v"),
    "shared by heads": (
        "v25 = Unsqueeze (v2, back) v2e = Expand (v25, shape) vr = Reshape (v2e, shape)",
        "vr",
        "v2",
    ),
    "not from the unsqueezed": ("v2e = Expand (v25, shape) vr = Reshape (v2e, shape)", "vr", "vr"),
}
BETWEEN = {
    "nothing": "x = Identity (p)",
    "all that may be": "a = Mul (p, p2) b = Div (p2, a) c = Add (b, p2) d = Sub (p2, c) "
    "e = Where (p2, d, p2) f = Max (e, p2) g = Min (p2, f) i = Clip (g) j = Neg (i) "
    "m = Cast <to = 1> (j) n = CastLike (m, p2) s = Reshape (n, shape) x = Identity (s)",
    "twice the same": "a = Neg (p) x = Add (a, p)",
    "a product of weights": "a = MatMul (h, weight) x = Add (p, a)",
    "of a product of weights": "a = MatMul (table, h) x = Add (a, p)",
    "others beside it": "a = Exp (h) b = MatMul (a, h) c = Relu (b) x = Add (p, c)",
    "of another domain": "b = MatMul (h, h) c = other.Add (b, b) x = Add (p, c)",
}
WEIGHTS = {"plain": ("", "w"), "cast": ("wa = Cast <to = 1> (w) wb = Identity (wa)", "wb")}


@pytest.mark.parametrize(("keys", "values"), product(KEYS, VALUES))
def test_any_spelling_of_keys_and_values(keys: str, values: str) -> None:
    of_keys, key, perm = KEYS[keys]
    of_values, read, value = VALUES[values]
    for between, (of_weights, weights) in product(BETWEEN.values(), WEIGHTS.values()):
        nodes = f"""
            {of_keys} {of_values} p = MatMul (q, kt) {between.replace("p2", "positions")}
            w = Softmax <axis = -1> (x) {of_weights} y = MatMul ({weights}, {read})
            last = Relu (y)"""
        answer = found(nodes.replace("positions", "r"))
        assert names(answer) == ("q", key, value, "y")
        assert (answer.products.name, answer.scores.name) == ("p", "x")
        assert answer.k[1] == perm
        if perm is not None:
            stated = DIMS[key].split(",")
            assert [stated[axis] for axis in perm] == DIMS["k"].split(",")


@pytest.mark.parametrize("axis", ["axis = 3", "axis = -1", ""])
def test_the_softmax_is_over_the_last_axis(axis: str) -> None:
    nodes = "kt = Transpose <perm = [0, 1, 3, 2]> (k) x = MatMul (q, kt) "
    nodes += f"w = Softmax {f'<{axis}>' if axis else ''} (x) y = MatMul (w, v) last = Relu (y)"
    assert names(found(nodes)) == ("q", "k", "v", "y")


MERGED = """
    q3 = Reshape (q, shape) k3 = Reshape (k, shape) v3 = Reshape (v, shape)
    kt3 = Transpose <perm = [0, 2, 1]> (k3) p3 = MatMul (q3, kt3) x3 = Identity (p3)
    w3 = Softmax <axis = 2> (x3) y3 = MatMul (w3, v3)"""


def test_heads_and_sequences_in_one_axis() -> None:
    one = found(f"{MERGED} ya = Reshape (y3, shape) last = Relu (ya)")
    assert names(one) == ("q", "k", "v", "ya")
    two = found(f"{MERGED} ya = Reshape (y3, shape) yb = Reshape (y3, shape) last = Add (ya, yb)")
    assert names(two) == ("q", "k", "v", "ya", "yb")
    assert two.k[1] is None


SHAPES = "queries, keys or values are not [B, heads, S, size]"
RESULT = "its result is not [B, heads, S, size]"
FIRST = "kt = Transpose <perm = [0, 1, 3, 2]> (k) p = MatMul (q, kt) x = Identity (p)"


@pytest.mark.parametrize(
    ("nodes", "changed", "reason"),
    [
        (f"{MERGED} ya = Reshape (y3, shape) yf = Neg (y3) last = Add (ya, yf)", {}, RESULT),
        (f"{MERGED} ya = Reshape (y3, shape) last = Relu (ya)", {"ya": "B,S,4,6"}, RESULT),
        (f"{MERGED} ya = Reshape (y3, shape) last = Relu (ya)", {"ya": "B,S,24"}, RESULT),
        (f"{MERGED} last = Relu (y3)", {}, RESULT),
        (f"{MERGED} ya = Reshape (y3, shape) last = Relu (ya)", {"q": "B,S,4,8"}, SHAPES),
        (f"{MERGED} ya = Reshape (y3, shape) last = Relu (ya)", {"k": "B,S,4,8"}, SHAPES),
        (f"{MERGED} ya = Reshape (y3, shape) last = Relu (ya)", {"v": "B,S,32"}, SHAPES),
        (
            MERGED.replace("[0, 2, 1]", "[2, 0, 1]") + " ya = Reshape (y3, shape) last = Relu (ya)",
            {},
            SHAPES,
        ),
        (
            MERGED.replace("v3 = Reshape (v, shape)", "v3 = Neg (v)")
            + " ya = Reshape (y3, shape) last = Relu (ya)",
            {},
            SHAPES,
        ),
        ("p = MatMul (q, kd) w = Softmax (p) y = MatMul (w, v) last = Relu (y)", {}, SHAPES),
        (
            "kt = Transpose <perm = [0, 1, 2, 4, 3]> (kr) p = MatMul (q, kt) w = Softmax (p) "
            "y = MatMul (w, v) last = Relu (y)",
            {"kr": "B,4,1,S,8", "kt": "B,4,1,8,S", "q": "B,4,S,8"},
            SHAPES,
        ),
        (
            "b = MatMul (h, h) kt = Transpose <perm = [0, 1, 3, 2]> (k) p = MatMul (q, kt) "
            "x = Add (p, b) w = Softmax (x) y = MatMul (w, v) last = Relu (y)",
            {},
            "2 products of computed values lie behind its softmax",
        ),
        (
            "a = Exp (q) w = Softmax (a) y = MatMul (w, v) last = Relu (y)",
            {"a": "B,4,S,S", "w": "B,4,S,S"},
            "0 products of computed values lie behind its softmax",
        ),
    ],
)
def test_near_misses_say_why(nodes: str, changed: dict[str, str], reason: str) -> None:
    assert match(softmax_of(nodes, changed)) == reason


@pytest.mark.parametrize(
    "rest",
    [
        "w = Softmax <axis = 2> (x) y = MatMul (w, v) last = Relu (y)",
        "w = Softmax <axis = -2> (x) y = MatMul (w, v) last = Relu (y)",
        "w = Softmax (x) last = Relu (w)",
        "w = Softmax (x) l = Exp (w) last = MatMul (l, v)",
        "w = Softmax (x) y = MatMul (w, v) last = Add (y, w)",
        "w = Softmax (x) y = MatMul (w, weight) last = Relu (y)",
    ],
)
def test_what_is_nothing_like_an_attention(rest: str) -> None:
    """Probabilities that something else reads, or that weigh a constant, as a router's do."""
    assert match(softmax_of(f"{FIRST} {rest}", {"w": "B,4,S,S"})) == ""


def test_shapes_are_those_of_the_text() -> None:
    """Or this file would test others than it says."""
    softmax = softmax_of(f"{FIRST} w = Softmax (x) y = MatMul (w, v) last = Relu (y)")
    value = softmax.inputs[0]
    assert value is not None
    assert np.array_equal([str(d) for d in value.shape or ()], ["B", "4", "S", "S"])
