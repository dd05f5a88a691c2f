"""A whole encoder of texts as ONNX text: packed rows have the values of its unpadded tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.importer.tensors.interface import describe
from optc.ir.forms.packed import PackedRows
from optc.ir.functions import is_op
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.weights import LazyWeight
from optc.passes.canonicalize.encoders.pack_rows import PackRows
from optc.passes.general.simplify import Simplify
from tests.passes.canonicalize.texts import wrong_shapes
from tests.support.ir_text import Array, f32
from tests.support.ragged import run

LENGTHS = (7, 1, 12, 4)
MASK = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
WEIGHTS: dict[str, Any] = {
    "words": f32(30, 8, seed=1),
    "kinds": f32(2, 8, seed=2),
    "places": f32(40, 8, seed=3),
    **{f"w{name}": f32(8, 8, seed=index) for index, name in enumerate("qkvo")},
    "scale": f32(8, seed=5),
    "frequencies": np.array([1.0, 0.1], np.float32),
    "split": np.array([0, 0, 2, 4]),
    "join": np.array([0, 0, 8]),
    "n0": np.array([0]),
    "n1": np.array([1]),
    "n12": np.array([1, 2]),
    "last": np.array([-1]),
    "zero": np.array(0),
    "one": np.array(1),
    "window": np.array(3),
    "first": np.array(0),
    "two": np.float32(2),
}
EMBED = """
    count = Shape <start = 1, end = 2> (ids) number = Squeeze (count) j = Range (zero, number, one)
    jj = Unsqueeze (j, n0) e1 = Gather (words, ids) e2 = Gather (places, jj) e3 = Add (e1, e2)
    {} x = LayerNormalization (e, scale)
"""
TYPED = "e4 = Gather (kinds, types) e = Add (e3, e4)"
PLAIN = "e = Identity (e3)"
HEADS = "".join(
    f"{n}p = MatMul (x, w{n}) {n}s = Reshape ({n}p, split) "
    f"{n} = Transpose <perm = [0, 2, 1, 3]> ({n}s) "
    for n in "qkv"
)
SEEN = "m1 = Unsqueeze (mask, n12) m2 = Cast <to = 9> (m1)"
NEAR = "i = Unsqueeze (j, n1) d = Sub (i, j) a = Abs (d) near = {} m = And (m2, near)"
ALL = NEAR.format("GreaterOrEqual (a, zero)")
ATTEND = """
    o = Attention <scale = 0.5> (q, k, v, m) t = Transpose <perm = [0, 2, 1, 3]> (o)
    r = Reshape (t, join) ro = MatMul (r, wo) h = Add (ro, x)
"""
ROTATE = """
    each = Shape (ids) jb = Expand (jj, each)
    real = Cast <to = 1> (jb) column = Unsqueeze (real, last) angle = Mul (column, frequencies)
    cos = Cos (angle) sin = Sin (angle)
    q1 = RotaryEmbedding <interleaved = 1> (q, cos, sin) k1 = RotaryEmbedding (k, cos, sin)
"""


def encoder(nodes: str, inputs: str = "ids mask types", outputs: str = "y") -> ir.Model:
    given = ", ".join(f"int64[batch,tokens] {name}" for name in inputs.split())
    made = ", ".join(f"float {name}" for name in outputs.split())
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 23]> g ({given}) => ({made}) {{ {nodes} }}'
    )
    words = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    for name, array in WEIGHTS.items():
        if name in words:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))
    for value in (v for node in model.graph for v in node.outputs):
        shape = [d if isinstance(d, int) else d.value for d in value.shape or ()]
        known = [d if isinstance(d, int) or d == "batch" else "tokens" for d in shape]
        value.shape = ir.Shape([1, *known[1:]] if value.name in ("jj", "e2") else known)
    describe(model, [])
    return model


def packed(model: ir.Model) -> tuple[PackedRows, dict[str, Array], dict[str, Array]]:
    """The form, and outputs of the rows and of what was there before, without padding."""
    rng = np.random.default_rng(0)
    dense = {
        "ids": rng.integers(3, 30, MASK.shape) * MASK,
        "mask": MASK.astype(np.int64),
        "types": rng.integers(0, 2, MASK.shape),
    }
    names = [str(value.name) for value in model.graph.inputs]
    before = run(model, {name: dense[name] for name in names})
    outputs = [str(value.name) for value in model.graph.outputs]
    wanted = {
        name: array[MASK] if array.shape[:2] == MASK.shape else array
        for name, array in zip(outputs, before, strict=True)
    }
    Pipeline((Simplify(), PackRows())).run(model)
    given: dict[str, Array] = {
        "tokens": dense["ids"][MASK],
        "positions": np.concatenate([np.arange(n) for n in LENGTHS]),
        "token_types": dense["types"][MASK],
        "query_starts": np.cumsum([0, *LENGTHS]),
    }
    inputs = [str(value.name) for value in model.graph.inputs]
    rows = {name: given[name].astype(np.int32) for name in inputs}
    assert inputs == [name for name in given if name in inputs], "in the order of the form"
    assert all(value.dtype == ir.DataType.INT32 for value in model.graph.inputs)
    assert wrong_shapes(model, rows) == []
    assert [str(value.name) for value in model.graph.outputs] == outputs
    return PackedRows.of(model), dict(zip(outputs, run(model, rows), strict=True)), wanted


def same(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("rotated", [False, True])
def test_rows_are_those_of_unpadded_tokens(typed: bool, window: int, rotated: bool) -> None:
    attend = ATTEND.replace("(q, k,", "(q1, k1,") if rotated else ATTEND
    nodes = " ".join(
        [
            EMBED.format(TYPED if typed else PLAIN),
            HEADS,
            SEEN,
            NEAR.format("Less (a, window)") if window else ALL,
            ROTATE if rotated else "",
            attend,
            "y = Tanh (h)",
        ]
    )
    model = encoder(nodes, "ids mask types" if typed else "ids mask")
    form, found, wanted = packed(model)
    assert form == PackedRows("ids", "mask", "types" if typed else "", ("y",))
    same(found, wanted)
    (attention,) = [n for n in model.graph if is_op(n, "PackedAttention", domain="optc")]
    given = {name: one.value for name, one in attention.attributes.items()}
    assert given == {
        "num_heads": 2,
        "kv_num_heads": 2,
        "scale": 0.5,
        "window": window,
        "kv_dtype": "float32",
    }
    tables = [n.inputs[0] for n in model.graph if is_op(n, "Gather")]
    lazy = [isinstance(t.const_value, LazyWeight) for t in tables if t is not None]
    assert lazy.count(True) == 1, "of tokens alone"


def test_a_pooled_output_beside_rows_and_heads() -> None:
    nodes = " ".join(
        [
            EMBED.format(PLAIN),
            HEADS,
            SEEN,
            ALL,
            ATTEND,
            "y = Tanh (h) keys = Identity (k) g = Gather <axis = 1> (h, first) z = Mul (g, two)",
        ]
    )
    model = encoder(nodes, "ids mask", "z keys y")
    form, found, wanted = packed(model)
    assert (form.by_token, dict(form.heads)) == (("keys", "y"), {"keys": 2})
    same({n: found[n] for n in "zy"}, {n: wanted[n] for n in "zy"})
    rows = found["keys"].reshape(-1, 2, 4)
    dense = wanted["keys"].transpose(0, 2, 1, 3)[MASK]
    np.testing.assert_allclose(rows, dense, rtol=1e-4, atol=1e-4)
    shapes = {v.name: [str(d) for d in v.shape or ()] for v in model.graph.outputs}
    assert shapes == {"z": ["B", "8"], "keys": ["T", "8"], "y": ["T", "8"]}


@pytest.mark.parametrize(
    ("nodes", "inputs", "reason"),
    [
        ("e = Gather (words, ids) y = Tanh (e)", "ids mask other", "neither|of its 3 inputs, 1"),
        ("f = Cast <to = 1> (ids) y = Tanh (f)", "ids", "of its 1 inputs, 0 are looked up"),
        (
            "a = Gather (words, ids) b = Gather (kinds, mask) c = Gather (places, types) "
            "d = Add (a, b) e = Add (d, c) y = Tanh (e)",
            "ids mask types",
            "of its 3 inputs, 3 are looked up",
        ),
        (
            "a = Gather <axis = 1> (words, ids) y = Tanh (a)".replace("words, ids", "ids, first"),
            "ids",
            "of its 1 inputs, 0 are looked up",
        ),
    ],
)
def test_inputs_that_are_no_texts_say_why(nodes: str, inputs: str, reason: str) -> None:
    model = encoder(nodes.replace("(a)", "(af)").replace("y =", "af = Cast <to = 1> (a) y =")
                    if "first" in nodes else nodes, inputs)  # fmt: skip
    with pytest.raises(UnsupportedError, match=reason):
        Pipeline((PackRows(),)).run(model)


def test_the_largest_table_is_that_of_tokens() -> None:
    """Whichever input comes first."""
    nodes = EMBED.format(TYPED) + "y = Tanh (x)"
    for inputs in ("types ids", "ids types"):
        form, found, wanted = packed(encoder(nodes, inputs))
        assert (form.ids, form.types, form.mask) == ("ids", "types", "")
        same(found, wanted)
