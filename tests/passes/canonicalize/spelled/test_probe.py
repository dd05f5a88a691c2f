"""Scores of any masks and biases, probed with few tokens: what is said of them holds of many.

The same nodes are run on more tokens than any window has. What the pattern says of those is what
they give, or the region is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from optc.passes.canonicalize.spelled import probe as spelled_probe
from optc.passes.canonicalize.spelled.pattern import Pattern
from optc.passes.canonicalize.spelled.probe import Probe, Scores
from optc.passes.canonicalize.spelled.region import Array, ForeignError, region_of
from tests.passes.canonicalize.texts import exported

HEADS = 3
SIGNATURE = "(int64[B,S] ids, int64[B,S] positions, float[B,3,S,S] p, float[T,S,S] p3) => (float x)"
#: Places of rows and columns, and how far they lie behind.
PLACES = """
    tokens_1 = Shape <start = 1, end = 2> (ids)
    tokens = Squeeze (tokens_1)
    j = Range (zero, tokens, one)
    i = Unsqueeze (j, axis_1)
    d = Sub (i, j)
    causal = GreaterOrEqual (d, zero)
"""
NUMBERS: dict[str, Any] = {
    "zero": np.array(0),
    "one": np.array(1),
    "axis_1": np.array([1]),
    "low": np.float32(-3e38),
    "nothing": np.float32(0),
    "scale": np.float32(0.375),
    "starts": np.array([0, 0]),
    "axes": np.array([2, 3]),
    "slopes": (2.0 ** -np.arange(1.0, 4.0)).astype(np.float32)[:, None, None],
    "n3": np.array([3]),
    "last": np.array([-1]),
}
SCALED = "s = Mul (p, scale)"


def probe(
    nodes: str,
    numbers: Mapping[str, Array] = {},
    *,
    products: str | None = "p",
    causal: bool = False,
) -> Probe:
    """Of the value ``x``, or of ``m``, where it is a mask."""
    given = {**NUMBERS, **numbers}
    words = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: array for name, array in given.items() if name in words}
    model = exported(
        SIGNATURE, nodes + ("" if " x = " in nodes else " x = Identity (m)"), None, used
    )
    values = {str(v.name): v for v in model.graph.inputs}
    values |= {str(v.name): v for node in model.graph for v in node.outputs}
    start = values[products] if products else None
    region = region_of(model.graph, values["x"], start)
    return Probe(model.graph, region, HEADS, start, products == "p3", causal)


def wanted(scores: Scores, products: Array) -> Array:
    """[H, S, S] that scores are, but for what rows have in common; -inf where nothing is seen."""
    tokens, pattern = products.shape[-1], scores.pattern
    index = np.arange(tokens)
    behind = index[:, None] - index
    seen = behind >= 0
    if pattern.window:
        seen &= behind < pattern.window
    if pattern.chunk:
        seen &= index[:, None] // pattern.chunk == index // pattern.chunk
    found = scores.scale * products
    if pattern.slopes is not None:
        found = found - np.array(pattern.slopes)[:, None, None] * behind
    if pattern.biases is not None:
        table = np.array(pattern.biases)
        found = found + table[:, behind.clip(0, table.shape[1] - 1)]
    return np.where(seen, found, -np.inf)


def difference(asked: Probe, scores: Scores, tokens: int) -> float:
    """Largest difference of scores of ``tokens`` tokens that are seen; inf if others are."""
    rng = np.random.default_rng(tokens)
    products = rng.standard_normal((HEADS, tokens, tokens)).astype(np.float32)
    given = {}
    if asked.products is not None:
        both = np.stack([products, products])
        given[asked.products] = both.reshape(-1, tokens, tokens) if asked.merged else both
    else:
        products = np.zeros_like(products)
    result = asked.region.run(asked.graph, tokens, given)
    if result.dtype == np.bool_:
        result = np.where(result, 0.0, -np.inf)
    if asked.merged:
        result = result.reshape(2, HEADS, tokens, tokens)
    found = np.broadcast_to(result, (2, HEADS, tokens, tokens))[1].astype(np.float64)
    if asked.causal:
        found = np.where(np.tri(tokens, dtype=bool), found, -np.inf)
    expected = wanted(scores, products)
    seen = found > -1e4
    if not (seen == np.isfinite(expected)).all():
        return np.inf
    # But for what a row has in common, which its own token has, too.
    apart = np.where(seen, found, 0) - np.where(seen, expected, 0)
    own = np.diagonal(apart, axis1=1, axis2=2)[:, :, None]
    return float(np.abs(apart - own)[seen].max())


#: By name: nodes of a mask ``m`` with a number N, the window or chunk that it makes of N, and
#: numbers that it is tried with.
LIMITS = {
    "d < N": ("n = Less (d, N) m = And (causal, n)", "window", 0),
    "d <= N": ("n = LessOrEqual (d, N) m = And (causal, n)", "window", 1),
    "N > d": ("n = Greater (N, d) m = And (causal, n)", "window", 0),
    "N >= d": ("n = GreaterOrEqual (N, d) m = And (causal, n)", "window", 1),
    "j > i - N": ("e = Sub (i, N) n = Greater (j, e) m = And (causal, n)", "window", 0),
    "j + N > i": ("e = Add (j, N) n = Greater (e, i) m = And (causal, n)", "window", 0),
    "i / N == j / N": (
        "a = Div (i, N) b = Div (j, N) n = Equal (a, b) m = And (causal, n)",
        "chunk",
        0,
    ),
    "i - i % N <= j": (
        "a = Mod (i, N) b = Sub (i, a) n = LessOrEqual (b, j) m = And (causal, n)",
        "chunk",
        0,
    ),
}
SIZES = (2, 3, 5, 7, 8, 9, 10, 11, 20, 600)


@pytest.mark.parametrize("name", LIMITS)
def test_windows_and_chunks_of_any_size(name: str) -> None:
    nodes, kind, more = LIMITS[name]
    for size in SIZES:
        whole = f"{PLACES} {nodes} {SCALED} x = Where (m, s, low)"
        asked = probe(whole, {"N": np.array(size)})
        scores = asked.scores()
        assert scores.scale == 0.375
        assert scores.pattern == Pattern(**{kind: size + more}), size
        assert difference(asked, scores, min(size, 24) + 12) < 1e-5


@pytest.mark.parametrize("causal", [False, True])
def test_masks_without_products(causal: bool) -> None:
    nodes = f"{PLACES} n = Less (d, N) m = And (causal, n)"
    if causal:
        nodes = nodes.replace("And (causal, n)", "Identity (n)")
    for size in SIZES:
        asked = probe(nodes, {"N": np.array(size)}, products=None, causal=causal)
        scores = asked.scores()
        assert (scores.scale, scores.pattern) == (1.0, Pattern(window=size))
        assert difference(asked, scores, min(size, 24) + 12) == 0


@pytest.mark.parametrize("rows", [9, 10, 16, 40, 300])
def test_tables_of_masks(rows: int) -> None:
    """[1, 1, N, N], cut to the number of tokens."""
    cut = (
        "stops = Concat <axis = 0> (tokens_1, tokens_1) m = Slice (table, starts, stops, axes) "
        f"{SCALED} x = Add (s, m)"
    )
    for window in (3, 8, 9, 10, 11, 13, rows - 1, rows):
        seen = np.tri(rows) - np.tri(rows, k=-window) > 0
        table = np.where(seen, 0, -1e9).astype(np.float32)[None, None]
        asked = probe(f"{PLACES} {cut}", {"table": table})
        scores = asked.scores()
        assert scores.pattern.window == (window if window < rows else 0)
        assert difference(asked, scores, min(rows, 48)) < 1e-5


def test_a_table_of_a_window_that_is_too_long_to_try() -> None:
    table = np.zeros((1, 1, 2100, 2100), np.float32)
    table[0, 0, -1, :40] = -1e9
    cut = "stops = Concat <axis = 0> (tokens_1, tokens_1) m = Slice (table, starts, stops, axes)"
    nodes = f"{PLACES} {cut} f = Where (causal, m, low) {SCALED} x = Add (s, f)"
    with pytest.raises(ForeignError, match="its mask is a table of a window of 2060 tokens"):
        probe(nodes, {"table": table}).scores()


@pytest.mark.parametrize(
    ("scale", "merged"), [(1.0, False), (0.001, False), (64.0, True), (0.375, True)]
)
def test_factors_of_products(scale: float, merged: bool) -> None:
    """Of [B, H, S, S] and of [B*H, S, S]."""
    name = "p3" if merged else "p"
    nodes = f"{PLACES} s = Mul ({name}, scale) x = Where (causal, s, low)"
    asked = probe(nodes, {"scale": np.float32(scale)}, products=name)
    scores = asked.scores()
    assert scores == Scores(float(np.float32(scale)), Pattern())
    assert difference(asked, scores, 13) < 1e-5 * scale


@pytest.mark.parametrize("size", [None, 4, 9, 30])
def test_slopes_within_any_window(size: int | None) -> None:
    mask = "n = Less (d, N) m = And (causal, n)" if size else "m = Identity (causal)"
    nodes = (
        f"{PLACES} {mask} f = Cast <to = 1> (j) l = Mul (slopes, f) {SCALED} a = Add (s, l) "
        "x = Where (m, a, low)"
    )
    asked = probe(nodes, {"N": np.array(size)} if size else {})
    scores = asked.scores()
    assert scores.pattern == Pattern(window=size or 0, slopes=(0.5, 0.25, 0.125))
    assert difference(asked, scores, 40) < 1e-5


BIASED = (
    f"{PLACES} n = Max (d, zero) e = Min (n, N) r = Gather (table, e) "
    f"l = Transpose <perm = [2, 0, 1]> (r) {SCALED} a = Add (s, l) x = Where (causal, a, low)"
)


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer tokens show from where on biases stay: thousands take seconds."""
    monkeypatch.setattr(spelled_probe, "_FAR", (16, 64))


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("reach", [1, 2, 6, 7, 8, 9, 30, 31])
def test_biases_have_an_entry_up_to_where_they_change_no_more(reach: int) -> None:
    table = np.random.default_rng(reach).standard_normal((reach + 1, HEADS)).astype(np.float32)
    asked = probe(BIASED, {"N": np.array(reach), "table": table})
    scores = asked.scores()
    assert scores.pattern.biases is not None
    assert np.shape(scores.pattern.biases) == (HEADS, reach + 1)
    np.testing.assert_allclose(scores.pattern.biases, (table - table[:1]).T, atol=1e-6)
    assert difference(asked, scores, 40) < 1e-5


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("reach", [32, 33, 63, 90])
def test_biases_that_change_for_too_long_are_refused(reach: int) -> None:
    table = np.random.default_rng(0).standard_normal((100, HEADS)).astype(np.float32)
    with pytest.raises(ForeignError, match="still changes 32 tokens away"):
        probe(BIASED, {"N": np.array(reach), "table": table}).scores()


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (f"{SCALED} x = Identity (s)", "a row sees tokens behind it"),
        ("s = Neg (p) x = Where (causal, s, low)", "its scores are -1.0 times products"),
        ("s = Mul (p, nothing) x = Where (causal, s, low)", "its scores are 0.0 times products"),
        ("s = Mul (p, p) x = Where (causal, s, low)", "not proportional to products"),
        ("s = Max (p, nothing) x = Where (causal, s, low)", "not proportional to products"),
        ("s = Div (p, slopes) x = Where (causal, s, low)", "not proportional to products"),
        (
            "u = Unsqueeze (ids, axis_1) t = Unsqueeze (u, axis_1) r = Greater (t, n3) "
            f"m = And (causal, r) {SCALED} x = Where (m, s, low)",
            "a row does not see itself|depends on the tokens",
        ),
        (
            "u = Unsqueeze (ids, axis_1) t = Unsqueeze (u, axis_1) r = Cast <to = 1> (t) "
            f"{SCALED} a = Add (s, r) x = Where (causal, a, low)",
            "its mask depends on the tokens",
        ),
        (
            f"u = Unsqueeze (p, axis_1) x = Where (causal, u, low) {SCALED}",
            r"its scores have shape \[2, 1, 3, 9, 9\]",
        ),
        (
            f"a = Less (d, N) b = Less (d, M) c = Where (b, p, low) {SCALED} e = And (causal, a) "
            "x = Where (e, c, low)",
            "it has several windows or chunks",
        ),
    ],
)
def test_what_is_no_attention_says_why(nodes: str, reason: str) -> None:
    asked = probe(f"{PLACES} {nodes}", {"N": np.array(700), "M": np.array(500)})
    with pytest.raises(ForeignError, match=reason):
        asked.scores()


def test_numbers_that_bound_no_place_are_not_tried() -> None:
    """What only hides tokens, or is taken away again."""
    nodes = (
        f"{PLACES} f = Cast <to = 1> (tokens) g = Mul (f, many) h = Sub (g, g) {SCALED} "
        "a = Add (s, h) x = Where (causal, a, low)"
    )
    asked = probe(nodes, {"many": np.float32(700)})
    assert asked.scores() == Scores(0.375, Pattern())
    hidden = (
        f"{PLACES} f = Cast <to = 1> (causal) u = Sub (f, unit) m = Mul (u, many) {SCALED} "
        "x = Add (s, m)"
    )
    asked = probe(hidden, {"many": np.float32(10000), "unit": np.float32(1)})
    assert asked.scores() == Scores(0.375, Pattern())
