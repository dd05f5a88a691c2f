"""`find-cross-attention` on text: attention to inputs becomes ``optc::CrossAttention``."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.ir.forms.decoder import Exported
from optc.passes.canonicalize.encoded.find_cross_attention import FindCrossAttention
from tests.passes.canonicalize.texts import after, exported
from tests.support.ir_text import expected, f32
from tests.support.ragged import run

SIGNATURE = (
    "(int64[B,S] input_ids, float[B,2,7,8] cross_0, float[B,2,7,6] cross_1) => (float[B,4,S,6] y)"
)
LOOKUP = """
    count = Shape <start: int = 1, end: int = 2> (input_ids)
    tokens = Squeeze (count)
    places = Range (zero, tokens, one)
    row = Unsqueeze (places, first)
    h = Gather (table, input_ids)
    wide = Unsqueeze (row, last)
    batch = Shape <start: int = 0, end: int = 1> (cross_1)
    all = Concat <axis: int = 0> (batch, ones)
    each = Expand (wide, all)
    p = GatherND (positions, each)
    s = Add (h, p)
    less = Mul (s, quarter)
    split = Reshape (less, heads)
    q = Transpose <perm: ints = [0, 2, 1, 3]> (split)
    y = Attention <scale: float = 0.5> (q, cross_0, cross_1OTHER)"""
CONSTANTS = {
    "zero": np.array(0),
    "one": np.array(1),
    "first": np.array([0]),
    "last": np.array([-1]),
    "ones": np.array([1, 1]),
    "heads": np.array([0, 0, 4, 8]),
    "quarter": np.array(0.25, np.float32),
    "table": f32(10, 32),
    "positions": f32(12, 32, seed=1),
    "mask": f32(1, 1, 1, 7),
    "shown": np.zeros((1, 1, 1, 7), np.float32),
}


def decoder(other: str = "") -> ir.Model:
    model = exported(SIGNATURE, LOOKUP.replace("OTHER", other), None, CONSTANTS)
    shapes: dict[str, list[int | str]] = {
        "row": [1, "S"],
        "wide": [1, "S", 1],
        "each": ["B", "S", 1],
        "p": ["B", "S", 32],
    }
    shapes |= {
        "s": ["B", "S", 32],
        "less": ["B", "S", 32],
        "split": ["B", "S", 4, 8],
        "q": ["B", 4, "S", 8],
    }
    for value in (value for node in model.graph for value in node.outputs):
        if value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
    return model


def test_text() -> None:
    model = decoder()
    text, report = after(model, FindCrossAttention())
    assert report.details == {
        "factors of queries": 1,
        "attention to an encoder": 1,
        "positions": 3,
        "rows of a table": 1,
    }
    inputs = {str(value.name): list(value.shape or ()) for value in model.graph.inputs}
    assert [list(map(str, shape)) for shape in inputs.values()] == [
        ["B", "S"],
        ["B", "S"],
        ["B", "7", "16"],
        ["B", "7", "12"],
    ]
    assert list(inputs) == ["input_ids", "position_ids", "cross_0", "cross_1"]
    assert text == expected("""
        t0 = Gather (table, input_ids)
        t1 = Gather <axis = 0> (positions, position_ids)
        t2 = Add (t0, t1)
        t3 = Reshape (t2, heads)
        t4 = Transpose <perm: ints = [0, 2, 1, 3]> (t3)
        t5 = Transpose <perm: ints = [0, 2, 1, 3]> (t4)
        t6 = Reshape (t5, to_0_0_rest)
        t7 = optc.CrossAttention <num_heads = 4, kv_num_heads = 2, scale = 0.125> \\
        (t6, cross_0, cross_1)
        t8 = Reshape (t7, to_0_0_4_6)
        y = Transpose <perm: ints = [0, 2, 1, 3]> (t8)
        """)


def test_numbers() -> None:
    ids = np.random.default_rng(0).integers(0, 10, (2, 5))
    cross = [f32(2, 2, 7, 8), f32(2, 2, 7, 6)]
    before = run(decoder(), {"input_ids": ids, "cross_0": cross[0], "cross_1": cross[1]})[0]
    model = decoder()
    FindCrossAttention().run(model)
    folded = {f"cross_{i}": a.transpose(0, 2, 1, 3).reshape(2, 7, -1) for i, a in enumerate(cross)}
    places = np.broadcast_to(np.arange(5), (2, 5))
    found = run(model, {"input_ids": ids, "position_ids": places, **folded})[0]
    np.testing.assert_allclose(found, before, atol=1e-5)


def test_other_decoders_stay() -> None:
    model = exported("(float[B,4,S,8] q) => (float[B,4,S,8] y)", "y = Identity (q)")
    assert not FindCrossAttention().run(model).details


#: The same in several operators, with a mask of the inputs' sizes; any number of states.
SPELLED = """
    turned = Transpose <perm: ints = [0, 1, 3, 2]> (cross_0)
    products = MatMul (q, turned)
    scaled = Mul (products, quarter)
    wide_mask = Shape (scaled)
    none = Expand (nothing, wide_mask)
    scores = Add (scaled, none)
    weights = Softmax <axis: int = -1> (scores)
    y = MatMul (weights, cross_1)"""


def spelled(nodes: str = SPELLED, states: int = 9) -> ir.Model:
    head, _, _ = LOOKUP.rpartition("y = Attention")
    signature = SIGNATURE.replace(",7,", ",P,").replace("B,2,P", "B,4,P")
    constants = {**CONSTANTS, "nothing": np.array(0, np.float32), "odd": f32(1, 1, 1, 1)}
    model = exported(signature, head + nodes, None, constants)
    shapes: dict[str, list[int | str]] = {"row": [1, "S"], "wide": [1, "S", 1]}
    shapes |= {"each": ["B", "S", 1], "p": ["B", "S", 32], "s": ["B", "S", 32]}
    shapes |= {"less": ["B", "S", 32], "split": ["B", "S", 4, 8], "q": ["B", 4, "S", 8]}
    shapes |= {"turned": ["B", 4, 8, "P"]}
    for name in ("products", "scaled", "none", "scores", "weights"):
        shapes[name] = ["B", 4, "S", "P"]
    for value in (value for node in model.graph for value in node.outputs):
        if value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
    Exported(states).attach(model)
    return model


def test_spelled_out_over_any_number_of_states() -> None:
    ids = np.random.default_rng(0).integers(0, 10, (2, 5))
    cross = [f32(2, 4, 7, 8), f32(2, 4, 7, 6)]
    before = run(spelled(), {"input_ids": ids, "cross_0": cross[0], "cross_1": cross[1]})[0]
    model = spelled()
    report = FindCrossAttention().run(model)
    assert report.details["attention to an encoder"] == 1
    inputs = {str(value.name): list(value.shape or ()) for value in model.graph.inputs}
    assert [str(dim) for dim in inputs["cross_0"]] == ["B", "9", "32"]
    (node,) = [node for node in model.graph if node.op_type == "CrossAttention"]
    assert node.attributes["scale"].as_float() == 0.25
    folded = {f"cross_{i}": a.transpose(0, 2, 1, 3).reshape(2, 7, -1) for i, a in enumerate(cross)}
    for value in model.graph.inputs[2:]:
        value.shape = ir.Shape(["B", "P", value.shape[2]])  # type: ignore[index]
    places = np.broadcast_to(np.arange(5), (2, 5))
    found = run(model, {"input_ids": ids, "position_ids": places, **folded})[0]
    np.testing.assert_allclose(found, before, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "states", "reason"),
    [
        (SPELLED.replace("nothing", "odd"), 9, "something is added to products"),
        (SPELLED.replace("Mul (products, quarter)", "Tanh (products)"), 9, "its queries are|reads"),
        (SPELLED, 0, "its keys are"),
    ],
)
def test_other_scores_are_refused(nodes: str, states: int, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        FindCrossAttention().run(spelled(nodes, states))


def test_a_mask_that_shows_all_is_left_out() -> None:
    model = decoder(", shown")
    assert FindCrossAttention().run(model).details["attention to an encoder"] == 1


def test_a_mask_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not an attention to an encoder that I know"):
        FindCrossAttention().run(decoder(", mask"))
