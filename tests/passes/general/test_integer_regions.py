"""What is computed in integers: operators that keep a grid of values, and what lies between."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from optc.passes.general.integer_regions import Regions, find_regions
from tests.support.ir_text import f32
from tests.support.ragged import run_exactly

WEIGHTS: dict[str, Any] = {
    "a": f32(4, 4, 1, 1),
    "b": f32(4, 4, 3, 3, seed=1),
    "m": f32(16, 5, seed=2),
    "bias": f32(4, seed=3),
    "long": f32(5, seed=4),
    "zero": np.array(0, np.float32),
    "one": np.array(1, np.float32),
    "minus": np.array(-1, np.float32),
    "none": np.zeros((0,), np.float32),
    "both": np.zeros(2, np.float32),
    "half": np.array(1, np.float16),
    "n0": np.array([0]),
    "n1": np.array([1]),
    "n2": np.array([2]),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "scales": np.array([1, 1, 2, 2], np.float32),
    "flat": np.array([1, 4, 16]),
    "wide": np.array([1, 4, 4, 4]),
    "one4": np.array([1, 4, 4, 1, 4]),
    "places": np.array([[1, 0], [2, 2]]),
}


def graph_of(nodes: str, outputs: str = "y", inputs: str = "x") -> ir.Graph:
    words = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    given = ", ".join(f"float[1,4,4,4] {name}" for name in inputs.split())
    made = ", ".join(f"float {name}" for name in outputs.split())
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22]> g ({given}) => ({made}) {{ {nodes} }}'
    )
    for name, array in WEIGHTS.items():
        if name in words:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return ir.from_proto(proto).graph


def regions(nodes: str, **options: Any) -> Regions:
    outputs = options.pop("outputs", "y")
    inputs = options.pop("inputs", "x")
    asked = {"first": True, "sums": True, **options}
    return find_regions(graph_of(nodes, outputs, inputs), **asked)


def kinds(nodes: list[ir.Node]) -> list[str]:
    return [node.op_type for node in nodes]


#: Operators of a convolution's result ``c``, with results ``o``.
MOVES = [
    "o = MaxPool <kernel_shape = [2, 2]> (c)",
    "o = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (c)",
    "o = Reshape (c, flat)",
    "o = Flatten (c)",
    "o = Transpose <perm = [0, 2, 1, 3]> (c)",
    "u = Unsqueeze (c, n1) o = Squeeze (u, n1)",
    "o = Slice (c, n0, n2, n1)",
    "o = Identity (c)",
    "o = DepthToSpace <blocksize = 2> (c)",
    "o = SpaceToDepth <blocksize = 2> (c)",
    "o = Pad (c, pads)",
    "o = Pad (c, pads, zero)",
    'o = Pad <mode = "edge"> (c, pads)',
    'o = Pad <mode = "reflect"> (c, pads, one)',
    "o = Resize (c, , scales)",
    'o = Resize <mode = "nearest"> (c, , scales)',
    "o = Gather <axis = 1> (c, places)",
    "o = Expand (c, wide)",
    "o = Split <axis = 1, num_outputs = 1> (c)",
]
#: Those that make other values, or more than one.
OTHERS = [
    "o = Pad (c, pads, one)",
    'o = Resize <mode = "linear"> (c, , scales)',
    'o = Resize <mode = "cubic"> (c, , scales)',
    "o = Softmax <axis = 1> (c)",
    "o = Exp (c)",
    "o = Sigmoid (c)",
    "o = ReduceMean (c)",
]


@pytest.mark.parametrize("nodes", MOVES + OTHERS)
def test_a_scale_does_for_both_sides_where_values_only_move(nodes: str) -> None:
    """What comes out are values that went in, or zeros: then, and only then, it is in a region."""
    whole = f"c = Conv (x, b) {nodes} d = Neg (o) y = Abs (d)"
    behind = f"c = Conv <pads = [1, 1, 1, 1]> (x, b) {nodes} h = Conv (o, a) y = Abs (h)"
    model = ir.Model(graph_of(f"c = Identity (x) {nodes} y = Identity (o)"), ir_version=10)
    x = 0.3 + 0.037 * np.arange(64, dtype=np.float32).reshape(1, 4, 4, 4)
    (given,) = run_exactly(model, {"x": x})
    moved = set(given.ravel().tolist()) <= {0.0, *x.ravel().tolist()}
    assert moved == (nodes in MOVES)
    found = regions(behind)
    names = kinds(found.others)
    expected = [word for word in nodes.split() if word[:1].isupper()] if moved else []
    assert names == expected
    if moved:
        result = found.others[-1].outputs[0]
        conv = found.products[0].outputs[0]
        assert found.root(result) is conv, "one scale for both"
        assert result in found.scales()[conv]
        assert len(found.products) == 2
    assert kinds(regions(whole).others) == [], "no product reads what it gives"


@pytest.mark.parametrize(
    "nodes",
    [
        "o, p = MaxPool <kernel_shape = [2, 2]> (c)",
        "o, p = Split <axis = 1, num_outputs = 2> (c)",
    ],
)
def test_operators_of_several_results_stay(nodes: str) -> None:
    found = regions(f"c = Conv <pads = [1, 1, 1, 1]> (x, b) {nodes} h = Conv (o, a) y = Abs (h)")
    assert found.others == []


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("o = Add (c, c)", ["Add"]),
        ("o = Concat <axis = 1> (c, c)", ["Concat"]),
        ("o = AveragePool <kernel_shape = [2, 2]> (c)", ["AveragePool"]),
        ("o = GlobalAveragePool (c)", ["GlobalAveragePool"]),
        ("o = LeakyRelu (c)", ["LeakyRelu"]),
        ("o = Add (c, x)", ["Add"]),
        ("o = Add (c, other)", []),
        ("o = Concat <axis = 1> (c, other)", []),
        ("o = Mul (c, c)", []),
    ],
)
def test_arithmetic_of_rounded_values_has_a_scale_of_its_own(nodes: str, found: list[str]) -> None:
    """All operands are rounded, or it stays float."""
    whole = f"c = Conv <pads = [1, 1, 1, 1]> (x, b) {nodes} h = Conv (o, a) y = Abs (h)"
    got = regions(whole, inputs="x other")
    assert kinds(got.others) == found
    if found:
        result = got.others[0].outputs[0]
        assert got.root(result) is result


@pytest.mark.parametrize("low", ["", "zero", "minus", "one", "x", "both"])
@pytest.mark.parametrize("high", ["", "zero", "minus", "one", "x", "both"])
def test_clips_around_zero_are_part_of_the_rounding(low: str, high: str) -> None:
    nodes = f"c = Conv (x, a) o = Clip (c, {low or ''}, {high or ''}) h = Conv (o, a) y = Abs (h)"
    found = regions(nodes.replace(", )", ")").replace(", )", ")"))
    sizes = {"": None, "zero": 0.0, "minus": -1.0, "one": 1.0}
    held = low in sizes and high in sizes
    if held:
        least, most = sizes[low], sizes[high]
        held = (least is None or least <= 0) and (most is None or most >= 0)
    assert [node.op_type for node in found.clips.values()] == (["Clip"] if held else [])
    value = found.products[0].outputs[0]
    assert (value in found.values) != held, "the clip's result is rounded in its place"


@pytest.mark.parametrize(
    ("nodes", "outputs", "clipped"),
    [
        ("c = Conv (x, a) o = Relu (c) h = Conv (o, a) y = Abs (h)", "y", True),
        ("c = Conv (x, a) o = Relu (c) h = Conv (o, a) z = Neg (c) y = Add (h, z)", "y", False),
        ("y = Conv (x, a) o = Relu (y) h = Conv (o, a) z = Abs (h)", "y z", False),
        ("c = Conv (x, a) o = Elu (c) h = Conv (o, a) y = Abs (h)", "y", False),
    ],
)
def test_a_relu_goes_where_nothing_else_reads_the_result(
    nodes: str, outputs: str, clipped: bool
) -> None:
    assert bool(regions(nodes, outputs=outputs).clips) == clipped


PRODUCTS = [
    ("h = Conv (o, b)", ""),
    ("h = Conv (o, b, bias)", ""),
    ("h = Conv (o, x)", "its weight is no float constant"),
    ("h = Conv (o, b, t)", "its bias is not constant"),
    ("f = Reshape (o, shape2) h = Gemm (f, m)", ""),
    ("f = Reshape (o, shape2) h = Gemm (f, m, long)", ""),
    ("f = Reshape (o, shape2) h = Gemm <alpha = 1.0, beta = 1.0, transA = 0> (f, m, long)", ""),
    ("f = Reshape (o, shape2) h = Gemm <alpha = 0.5> (f, m)", "alpha=0.5"),
    ("f = Reshape (o, shape2) h = Gemm <beta = 0.0> (f, m, long)", "beta=0.0"),
    ("f = Reshape (o, shape2) h = Gemm <transA = 1> (f, m)", "transA=1"),
    ("f = Reshape (o, shape2) h = MatMul (f, m)", ""),
    ("f = Reshape (o, shape2) h = MatMul (f, bias)", "its weight is no matrix"),
    ("f = Reshape (o, shape2) h = MatMul (f, f)", "its weight is no float constant"),
    ("h = Conv (o, m)", "its weight has no window"),
    ("h = Conv (o, half)", "its weight is no float constant"),
]
WEIGHTS["shape2"] = np.array([4, 16])


@pytest.mark.parametrize(("nodes", "reason"), PRODUCTS)
def test_products_that_integer_kernels_have(nodes: str, reason: str) -> None:
    found = regions(f"o = Conv (x, a) t = Neg (x) {nodes} y = Abs (h)")
    last = nodes.split("h = ")[1].split()[0]
    assert [why for _, why in found.skipped] == ([reason] if reason else [])
    assert kinds(found.products) == ["Conv", *([] if reason else [last])]
    if not reason:
        result = found.products[1].outputs[0]
        assert (result in found.values) == (last == "Conv"), "scores stay float"


def test_first_convolutions_and_sums_and_named_ones_stay_float_if_asked() -> None:
    nodes = "c = Conv (x, a) d = Conv (c, a) s = Add (d, c) e = Conv (s, a) y = Abs (e)"
    assert kinds(regions(nodes).products) == ["Conv"] * 3
    first = regions(nodes, first=False)
    assert [(n.outputs[0].name, why) for n, why in first.skipped] == [
        ("c", "no convolution comes before it")
    ]
    assert [n.outputs[0].name for n in first.products] == ["d", "e"]
    assert kinds(first.others) == ["Add"]
    sums = regions(nodes, sums=False)
    assert (kinds(sums.others), kinds(sums.products)) == ([], ["Conv"] * 3)
    named = regions(nodes, left=("d",))
    assert [(n.outputs[0].name, why) for n, why in named.skipped] == [
        ("d", "it loses most of all when it is rounded")
    ]
    assert [n.outputs[0].name for n in named.products] == ["c", "e"]
    assert named.others == []


def test_a_chain_of_operators_that_no_product_reads_stays_float() -> None:
    """From its end on; what a product reads beside it is rounded."""
    nodes = (
        "c = Conv (x, a) p = MaxPool <kernel_shape = [2, 2]> (c) t = Transpose (p) "
        "g = GlobalAveragePool (c) h = Conv (g, a) z = Abs (h) y = Abs (t)"
    )
    found = regions(nodes, outputs="y z")
    assert kinds(found.others) == ["GlobalAveragePool"]
    names = {str(value.name) for value in found.values}
    assert names == {"x", "c", "g", "h"}
    clipped = regions("c = Conv (x, a) s = Add (c, c) r = Relu (s) y = Abs (r)")
    assert (clipped.others, clipped.clips) == ([], {})
    assert {str(value.name) for value in clipped.values} == {"x", "c"}


def test_what_no_convolution_comes_before_is_no_region() -> None:
    found = regions("p = Relu (x) f = Reshape (p, shape2) h = MatMul (f, m) y = Abs (h)")
    assert (found.products, found.others, found.values) == ([], [], {})
