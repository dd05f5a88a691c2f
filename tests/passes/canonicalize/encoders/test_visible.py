"""The tokens that rows see, however masks are made, beside those masks over more tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.ir.forms.packed import Patches
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.encoders.source import Source
from optc.passes.canonicalize.encoders.visible import cut_masks
from tests.passes.canonicalize.texts import exported
from tests.support.ir_text import Array

SIGNATURE = (
    "(int64[batch,tokens] ids, int64[batch,tokens] mask, float[batch,2,tokens,4] q,"
    " float[batch,2,tokens,4] k, float[batch,2,tokens,3] v) => (float[batch,2,tokens,3] y)"
)
NUMBERS: dict[str, Any] = {
    "zero": np.array(0),
    "one": np.array(1),
    "n0": np.array([0]),
    "n1": np.array([1]),
    "n12": np.array([1, 2]),
    "n3": np.array([3]),
    "starts": np.array([0, 0]),
    "axes": np.array([2, 3]),
    "low": np.float32(-3e38),
    "nothing": np.float32(0),
    "scale": np.float32(0.375),
    "unit": np.float32(1),
    "minus": np.float32(-1),
}
#: How far columns lie behind rows.
PLACES = """
    count = Shape <start = 1, end = 2> (ids)
    number = Squeeze (count)
    j = Range (zero, number, one)
    i = Unsqueeze (j, n1)
    d = Sub (i, j)
    a = Abs (d)
"""
#: Columns that are no padding: booleans ``s`` [batch, 1, 1, tokens].
SEEN = "u = Unsqueeze (mask, n12) s = Cast <to = 9> (u)"
STANDARD = "y = Attention <scale = 0.5> (q, k, v, m)"
SPELLED = """
    t = Transpose <perm = [0, 1, 3, 2]> (k) p0 = MatMul (q, t) p = Mul (p0, scale)
    x = {} w = Softmax <axis = -1> (x) y = MatMul (w, v)
"""
#: Windows of N, or of N + 1, on either side: booleans ``m``.
WINDOWS = {
    "a < N": (f"{PLACES} {SEEN} n = Less (a, N) m = And (s, n)", 0),
    "a <= N": (f"{PLACES} {SEEN} n = LessOrEqual (a, N) m = And (s, n)", 1),
    "-N < d < N": (
        f"{PLACES} {SEEN} b = Less (d, N) c = Greater (d, M) n = And (b, c) m = And (s, n)",
        0,
    ),
}


def source_of(nodes: str, numbers: dict[str, Array] | None = None) -> Source:
    given = {**NUMBERS, **(numbers or {})}
    words = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: array for name, array in given.items() if name in words}
    model = exported(SIGNATURE, nodes, None, used)
    ids, mask, *_ = model.graph.inputs
    return Source(model.graph, ids, mask, None, "batch", "tokens")


def window_of(nodes: str, numbers: dict[str, Array] | None = None) -> int:
    """The window that is found; attention is left without a mask."""
    source = source_of(nodes, numbers)
    report = PassReport()
    (window,) = cut_masks(source, report).values()
    assert report.details == {f"attention, window {window}" if window else "attention": 1}
    (node,) = [node for node in source.graph if node.op_type == "Attention"]
    assert node.attributes["is_causal"].as_int() == 1
    assert all(value is None for value in node.inputs[3:])
    return window


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("how", [STANDARD, SPELLED.format("Where (m, p, low)")])
def test_windows_of_any_size(name: str, how: str) -> None:
    nodes, more = WINDOWS[name]
    for size in (2, 3, 7, 8, 9, 10, 11, 12, 50, 255, 256, 257, 3000):
        numbers = {"N": np.array(size), "M": np.array(-size)}
        assert window_of(f"{nodes} {how}", numbers) == size + more, size


@pytest.mark.parametrize("rows", [12, 40, 100])
def test_windows_of_tables(rows: int) -> None:
    """[1, 1, N, N], cut to the number of tokens."""
    cut = "stops = Concat <axis = 0> (count, count) t1 = Slice (table, starts, stops, axes)"
    nodes = f"{PLACES} {SEEN} {cut} b = Where (s, nothing, low) m = Add (b, t1) {STANDARD}"
    index = np.arange(rows)
    for window in (2, 10, 11, 12, 13, 30, rows - 1, rows):
        seen = np.abs(index[:, None] - index) < window
        table = np.where(seen, 0, -1e9).astype(np.float32)[None, None]
        assert window_of(nodes, {"table": table}) == (window if window < rows else 0)


@pytest.mark.parametrize(
    "mask",
    [
        f"{SEEN} m = Identity (s)",
        f"{SEEN} f = Where (s, nothing, low) m = Identity (f)",
        "u = Unsqueeze (mask, n12) f = Cast <to = 1> (u) g = Sub (unit, f) m = Mul (g, low)",
        f"{PLACES} {SEEN} o = GreaterOrEqual (a, zero) m = And (s, o)",
    ],
)
def test_all_that_is_no_padding(mask: str) -> None:
    assert window_of(f"{mask} {STANDARD}") == 0


@pytest.mark.parametrize(
    ("products", "scale"),
    [
        ("Where (s, p, low)", 0.375),
        ("Add (p, f)", 0.375),
        ("Add (f, p)", 0.375),
    ],
)
def test_scales_of_spelled_attention(products: str, scale: float) -> None:
    source = source_of(f"{SEEN} f = Where (s, nothing, low) {SPELLED.format(products)}")
    cut_masks(source, PassReport())
    (node,) = [node for node in source.graph if node.op_type == "Attention"]
    assert node.attributes["scale"].as_float() == scale
    assert [str(v.name) for v in node.inputs if v is not None][::2] == ["q", "v"]
    keys = node.inputs[1]
    assert keys is not None
    assert keys.name == "k"
    assert node.outputs[0].shape == ir.Shape(["batch", 2, "tokens", 3])
    assert node.outputs[0].is_graph_output()


def test_layers_with_one_mask_each_get_its_window() -> None:
    """And heads are those of operands of three axes, too."""
    nodes = f"{WINDOWS['a < N'][0]} z = Attention (q, k, k, m) y = Attention (z, k, v, m)"
    source = source_of(nodes, {"N": np.array(20)})
    for index, node in enumerate(n for n in source.graph if n.op_type == "Attention"):
        node.name = f"a{index}"
    assert cut_masks(source, PassReport()) == {"a0": 20, "a1": 20}


FULL = f"{SEEN} m = Identity (s)"


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (f"{FULL} y = Attention <is_causal = 1> (q, k, v, m)", "it is causal"),
        (f"{FULL} y = Attention (q, k, v, m, k, v)", "it has a past"),
        ("y = Attention (q, k, v)", "it sees padding"),
        (
            f"{PLACES} o = GreaterOrEqual (a, zero) m = Unsqueeze (o, n0) {STANDARD}",
            "rows see padding",
        ),
        (f"{PLACES} {SEEN} o = GreaterOrEqual (d, zero) m = And (s, o) {STANDARD}", "no window"),
        (f"{PLACES} {SEEN} o = Greater (a, zero) m = And (s, o) {STANDARD}", "does not see itself"),
        (
            f"{PLACES} {SEEN} o = Less (a, N) e = Less (a, M) h = And (o, head) l = And (e, other) "
            f"b = Or (h, l) m = And (s, b) {STANDARD}",
            "heads see different tokens",
        ),
        (
            f"{PLACES} {SEEN} c = Div (i, M) e = Div (j, M) o = Equal (c, e) m = And (s, o) "
            f"{STANDARD}",
            "no window",
        ),
        (
            f"{PLACES} {SEEN} f = Where (s, nothing, low) r = Cast <to = 1> (a) g = Neg (r) "
            f"m = Add (f, g) {STANDARD}",
            "a bias is added to scores",
        ),
        (
            f"{PLACES} {SEEN} r = Less (number, L) b = Where (r, M, N) n = Less (a, b) "
            f"m = And (s, n) {STANDARD}",
            "it has several windows",
        ),
        (
            f"{FULL} {SPELLED.format('Where (m, p2, low)').replace('x =', 'p2 = Mul (p, p) x =')}",
            "not proportional to products",
        ),
        (
            f"{FULL} {SPELLED.format('Where (m, p2, low)').replace('x =', 'p2 = Neg (p) x =')}",
            "not proportional to products",
        ),
        (f"{FULL} o = Concat <axis = 1> (m, m, m) {STANDARD.replace('m)', 'o)')}", "has shape"),
    ],
)
def test_what_rows_of_encoders_do_not_see_says_why(nodes: str, reason: str) -> None:
    numbers = {
        "N": np.array(20),
        "M": np.array(5),
        "L": np.array(15),
        "head": np.array([[[True]], [[False]]]),
        "other": np.array([[[False]], [[True]]]),
    }
    with pytest.raises(UnsupportedError, match=reason):
        cut_masks(source_of(nodes, numbers), PassReport())


def test_a_near_miss_is_told_and_left() -> None:
    nodes = f"{FULL} {SPELLED.format('Exp (p)')}".replace("Exp (p)", "Abs (p)")
    source, report = source_of(nodes), PassReport()
    assert cut_masks(source, report) == {}
    assert "0 products of computed values" in report.skipped[0]


def test_a_near_miss_hides_no_attention_behind_it() -> None:
    spelled = SPELLED.format("Abs (p)").replace("y =", "z =")
    source, report = source_of(f"{FULL} {spelled} {STANDARD}"), PassReport()
    assert list(cut_masks(source, report).values()) == [0]
    assert len(report.skipped) == 1


def test_images_need_no_mask_and_are_of_one_size() -> None:
    source = source_of("y = Attention (q, k, v)")
    patches = Source(
        source.graph, source.ids, None, None, "batch", "tokens", Patches("x", (2, 2), 9, 1, 0)
    )
    assert list(cut_masks(patches, PassReport()).values()) == [0]
