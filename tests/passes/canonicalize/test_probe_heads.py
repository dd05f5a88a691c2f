"""`probe-heads` on text: however heads are cut and turned, projections and rotary operators."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.find_attention import FindAttention
from optc.passes.canonicalize.fold_heads import FoldHeads
from optc.passes.canonicalize.probe_heads import ProbeHeads
from optc.passes.canonicalize.slices_to_split import SlicesToSplit
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import f32

STEPS = (ProbeHeads(), FindAttention(), FoldHeads())
#: Two heads of eight; hidden size 6.
CONSTANTS = {
    "heads": np.array([0, 0, 2, 8]),
    "pairs": np.array([0, 0, 2, 4, 2]),
    "triples": np.array([0, 0, 2, 24]),
    "thirds": np.array([8, 8, 8]),
    "folded": np.array([0, 0, 16]),
    "frequencies": np.array([1.0, 0.3, 0.1, 0.03], np.float32),
    "doubled": np.array([1.0, 1.0, 0.3, 0.3, 0.1, 0.1, 0.03, 0.03], np.float32),
    "half": np.array([4]),
    **{f"n{i}": np.array([i]) for i in (0, 1, 2, 3, 8)},
    "minus": np.array([-1]),
    "beta": np.float32(0.1),
    "unit": np.float32(1),
}
ANGLES = """
    real = Cast <to: int = 1> (position_ids)
    column = Unsqueeze (real, minus)
    angle = Mul (column, frequencies)
    c = Cos (angle) s = Sin (angle)
    cos = Unsqueeze (c, n1) sin = Unsqueeze (s, n1)
    """


def projected(*names: str) -> str:
    """Projections split into heads before tokens."""
    return " ".join(
        f"{n}p = MatMul (x, w{n}) {n}s = Reshape ({n}p, heads) "
        f"{n}h = Transpose <perm: ints = [0, 2, 1, 3]> ({n}s)"
        for n in names
    )


#: Neighbours turn, and stay where they are.
INTERLEAVED = """
    {0}e = Slice ({0}h, n0, n8, n3, n2) {0}o = Slice ({0}h, n1, n8, n3, n2)
    {0}a = Mul ({0}e, cos) {0}b = Mul ({0}o, sin) {0}c = Sub ({0}a, {0}b)
    {0}d = Mul ({0}o, cos) {0}f = Mul ({0}e, sin) {0}g = Add ({0}d, {0}f)
    {0}i = Unsqueeze ({0}c, minus) {0}j = Unsqueeze ({0}g, minus)
    {0}k = Concat <axis: int = -1> ({0}i, {0}j)
    {0}5 = Reshape ({0}k, back5)
    """
#: Neighbours turn, and end half a head apart.
GATHERED = """
    {0}e = Slice ({0}h, n0, n8, n3, n2) {0}o = Slice ({0}h, n1, n8, n3, n2)
    {0}a = Mul ({0}e, cos) {0}b = Mul ({0}o, sin) {0}c = Sub ({0}a, {0}b)
    {0}d = Mul ({0}o, cos) {0}f = Mul ({0}e, sin) {0}g = Add ({0}d, {0}f)
    {0}5 = Concat <axis: int = -1> ({0}c, {0}g)
    """
#: Dimension i turns with 7 - i.
MIRRORED = """
    {0}e = Slice ({0}h, n0, half, n3) {0}z = Gather <axis: int = 3> ({0}h, order)
    {0}o = Slice ({0}z, n0, half, n3)
    {0}a = Mul ({0}e, cos) {0}b = Mul ({0}o, sin) {0}c = Sub ({0}a, {0}b)
    {0}d = Mul ({0}o, cos) {0}f = Mul ({0}e, sin) {0}g = Add ({0}d, {0}f)
    {0}5 = Concat <axis: int = -1> ({0}c, {0}g)
    """
#: Halves of a head turn, by tables that say every angle twice.
TWICE = """
    twice = Concat <axis: int = -1> (angle, angle)
    c2 = Cos (twice) s2 = Sin (twice)
    cos2 = Unsqueeze (c2, n1) sin2 = Unsqueeze (s2, n1)
    """
HALVES = """
    {0}e = Slice ({0}h, n0, half, n3) {0}o = Slice ({0}h, half, n8, n3)
    {0}n = Neg ({0}o) {0}z = Concat <axis: int = -1> ({0}n, {0}e)
    {0}a = Mul ({0}h, cos2) {0}b = Mul ({0}z, sin2) {0}5 = Add ({0}a, {0}b)
    """
#: The same of the first four dimensions, by the first two angles; the others stay.
PARTIAL = """
    {0}f = Slice ({0}h, n0, half, n3) {0}r = Slice ({0}h, half, n8, n3)
    {0}e = Slice ({0}f, n0, n2, n3) {0}o = Slice ({0}f, n2, half, n3)
    {0}n = Neg ({0}o) {0}z = Concat <axis: int = -1> ({0}n, {0}e)
    {0}a = Mul ({0}f, cos3) {0}b = Mul ({0}z, sin3) {0}t = Add ({0}a, {0}b)
    {0}5 = Concat <axis: int = -1> ({0}t, {0}r)
    """
FEWER = """
    few = Slice (angle, n0, n2, minus) fewer = Concat <axis: int = -1> (few, few)
    c3 = Cos (fewer) s3 = Sin (fewer)
    cos3 = Unsqueeze (c3, n1) sin3 = Unsqueeze (s3, n1)
    """
ATTEND = """
    a = Attention <is_causal: int = 1> ({q}, {k}, {v})
    t = Transpose <perm: ints = [0, 2, 1, 3]> (a)
    y = Reshape (t, folded)
    """
SIGNATURE = "(float[B,S,6] x, int64[B,S] position_ids) => (float[B,S,16] y)"
WEIGHTS = {f"w{n}": f32(6, 16) * 0.5 for n in "qkv"}
MORE = {"back5": np.array([0, 0, 0, 8]), "order": np.array([7, 6, 5, 4, 3, 2, 1, 0])}


def model(nodes: str, weights: dict[str, np.ndarray] | None = None) -> ir.Model:
    constants = {**CONSTANTS, **MORE}
    named = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    weights = WEIGHTS if weights is None else weights
    return exported(
        SIGNATURE,
        nodes,
        {k: v for k, v in weights.items() if k in named},
        {k: v for k, v in constants.items() if k in named},
    )


def inputs() -> dict[str, np.ndarray]:
    positions = np.array([[0, 1, 5, 6, 40], [9, 2, 3, 4, 100]])
    return {"x": f32(2, 5, 6), "position_ids": positions}


def turned(kind: str) -> str:
    rotations = kind.format("q") + kind.format("k")
    return (
        ANGLES
        + TWICE
        + FEWER
        + projected(*"qkv")
        + rotations
        + ATTEND.format(q="q5", k="k5", v="vh")
    )


def error(nodes: str, weights: dict[str, np.ndarray] | None = None) -> float:
    return unchanged(model(nodes, weights), inputs(), *STEPS)


@pytest.mark.parametrize(
    ("kind", "width", "interleaved", "moved"),
    [
        (HALVES, 8, 0, False),
        (PARTIAL, 4, 0, False),
        (INTERLEAVED, 8, 1, False),
        (GATHERED, 8, 1, False),
        (MIRRORED, 8, 0, True),
    ],
)
def test_rotation_however_it_is_spelled(
    kind: str, width: int, interleaved: int, moved: bool
) -> None:
    text, _ = after(model(turned(kind)), *STEPS)
    options = f"num_heads = 2, rotary_embedding_dim = {width}, interleaved = {interleaved}"
    assert text.count(f"RotaryEmbedding <{options}>") == 2
    assert text.count("Reshape") == text.count("Transpose") == text.count("Slice") == 0
    assert text.count("Cos (") == text.count("Sin (") == 1, "once for q and k"
    assert ("wq.q" in text, "wk.k" in text) == (moved, moved)
    assert error(turned(kind)) < 1e-5


def test_the_shape_of_the_angles_may_be_read() -> None:
    """As complex numbers of length 1 are made: as many ones as there are angles."""
    ones = "c0 = Cos (angle) shape = Shape (angle) one = Expand (unit, shape) c = Mul (c0, one)"
    text, _ = after(model(turned(INTERLEAVED).replace("c = Cos (angle)", ones)), *STEPS)
    assert text.count("RotaryEmbedding <") == 2


FUSED = """
    p = MatMul (x, w) r = Reshape (p, triples)
    q1, k1, v1 = Split <axis: int = -1> (r, thirds)
    q = Transpose <perm: ints = [0, 2, 1, 3]> (q1)
    k = Transpose <perm: ints = [0, 2, 1, 3]> (k1)
    v = Transpose <perm: ints = [0, 2, 1, 3]> (v1)
    """ + ATTEND.format(q="q", k="k", v="v")


def test_heads_of_a_fused_projection() -> None:
    weights = {"w": f32(6, 48)}
    found = model(FUSED, weights)
    text, _ = after(found, *STEPS)
    assert [text.count(f"MatMul (x, w.{role})") for role in "qkv"] == [1, 1, 1]
    rows = found.graph.initializers["w.k"].const_value
    columns = [*range(8, 16), *range(32, 40)]
    assert np.array_equal(rows.numpy(), weights["w"][:, columns])
    assert error(FUSED, weights) < 1e-6


#: q, k and v of two heads are three rows of five axes, and attention is spelled out.
SPELLED = """
    p = MatMul (x, w) r = Reshape (p, five)
    q1 = Gather <axis: int = 3> (r, i0) k1 = Gather <axis: int = 3> (r, i1)
    v1 = Gather <axis: int = 3> (r, i2)
    q = Transpose <perm: ints = [0, 2, 1, 3]> (q1) k = Transpose <perm: ints = [0, 2, 3, 1]> (k1)
    v = Transpose <perm: ints = [0, 2, 1, 3]> (v1)
    qk = MatMul (q, k) masked = Where (hidden, low, qk)
    weights = Softmax <axis: int = -1> (masked) a = MatMul (weights, v)
    t = Transpose <perm: ints = [0, 2, 1, 3]> (a) y = Reshape (t, folded)
    """
HIDDEN = """
    n = Shape <start: int = 1, end: int = 2> (position_ids) m = Squeeze (n)
    places = Range (i0, m, i1) rows = Unsqueeze (places, minus) hidden = Greater (places, rows)
    """


def spelled() -> ir.Model:
    more = {"five": np.array([0, 0, 2, 3, 8]), "low": np.float32(-1e9)}
    more |= {f"i{index}": np.array(index) for index in range(3)}
    constants = {k: CONSTANTS[k] for k in ("folded", "minus")} | more
    return exported(SIGNATURE, HIDDEN + SPELLED, {"w": f32(6, 48) * 0.3}, constants)


def test_heads_of_spelled_attention_are_read_behind_it() -> None:
    text, _ = after(spelled(), *STEPS, ProbeHeads())
    assert [text.count(f"MatMul (x, w.{role})") for role in "qkv"] == [1, 1, 1]
    assert "Gather" not in text
    assert "Reshape" not in text
    assert unchanged(spelled(), inputs(), *STEPS, ProbeHeads()) < 1e-5


#: One head of keys and one of values behind the queries, taken by `GatherND`.
ONE_KEY = """
    p = MatMul (x, w) r = Reshape (p, four) m = Transpose <perm: ints = [2, 0, 1, 3]> (r)
    q1 = Slice (r, n0, n2, n2) q = Transpose <perm: ints = [0, 2, 1, 3]> (q1)
    k1 = GatherND (m, third) k = Transpose <perm: ints = [1, 0, 2, 3]> (k1)
    v1 = GatherND (m, fourth) v = Transpose <perm: ints = [1, 0, 2, 3]> (v1)
    """ + ATTEND.format(q="q", k="k", v="v")


def test_one_head_of_keys_by_its_index() -> None:
    def model() -> ir.Model:
        more = {"four": np.array([0, 0, 4, 8]), "third": np.array([[2]]), "fourth": np.array([[3]])}
        constants = {k: CONSTANTS[k] for k in ("n0", "n2", "folded")} | more
        return exported(SIGNATURE, ONE_KEY, {"w": f32(6, 32) * 0.3}, constants)

    text, _ = after(model(), *STEPS)
    assert "GatherND" not in text
    assert text.count("Reshape") == text.count("Transpose") == 0
    assert unchanged(model(), inputs(), *STEPS) < 1e-5


def test_biases_go_with_their_rows() -> None:
    nodes = FUSED.replace("p = MatMul (x, w)", "m = MatMul (x, w) p = Add (m, bias)")
    found = exported(SIGNATURE, nodes, {"w": f32(6, 48), "bias": f32(48)}, CONSTANTS)
    before = exported(SIGNATURE, nodes, {"w": f32(6, 48), "bias": f32(48)}, CONSTANTS)
    text, _ = after(found, *STEPS)
    assert text.count("Add (") == 3
    assert unchanged(before, inputs(), *STEPS) < 1e-6


SCALED = (
    ANGLES
    + projected(*"qkv")
    + """
    lengths = Floor (real) grown = Mul (lengths, beta) wide = Unsqueeze (grown, n1)
    factor = Unsqueeze (wide, minus) qf = Mul (qh, factor)
    """
    + ATTEND.format(q="qf", k="kh", v="vh")
)


def test_a_factor_a_token_is_folded() -> None:
    text, _ = after(model(SCALED), *STEPS)
    assert text.count("Unsqueeze") == 1
    assert text.count("Reshape") == text.count("Transpose") == 0
    assert error(SCALED) < 1e-5


def test_operands_that_are_only_split_are_left_alone() -> None:
    nodes = projected(*"qkv") + ATTEND.format(q="qh", k="kh", v="vh")
    report = ProbeHeads().run(model(nodes))
    assert (report.count, report.skipped) == (0, [])


SQUARED = turned(INTERLEAVED).replace(
    "angle = Mul (column, frequencies)",
    """
    linear = Mul (column, frequencies) angle = Mul (linear, linear)""",
)
MIXED = (
    projected(*"qkv")
    + "qm = Gather <axis: int = 3> (qh, order) qz = Add (qh, qm)"
    + (ATTEND.format(q="qz", k="kh", v="vh"))
)
TWO = projected(*"qkv") + "qz = Add (qh, vh)" + ATTEND.format(q="qz", k="kh", v="vh")
THREE = TWO.replace("qz =", "qy =").replace("a = Att", "qz = Add (qy, kh) a = Att")
NEAR = {
    "its angles are not positions times frequencies": SQUARED,
    "some of its dimensions are mixed of several": MIXED,
    "it is no selection and rotation of its operand": TWO,
    "it comes from several projections": THREE,
    "a pair of its dimensions is not turned but mirrored": turned(INTERLEAVED).replace(
        "Add", "Sub"
    ),
}


@pytest.mark.parametrize("message", NEAR)
def test_near_misses_say_why(message: str) -> None:
    found = model(NEAR[message])
    report = ProbeHeads().run(found)
    assert any(text.endswith(f"is not made in a way I know: {message}") for text in report.skipped)
    assert "RotaryEmbedding" not in {node.op_type for node in found.graph}


#: Keys [rest, turned]: the rest of a latent, the turned columns shared by both heads, by Expand.
LATENT = (
    """
    qp = MatMul (x, wq) qs = Reshape (qp, heads) qh = Transpose <perm: ints = [0, 2, 1, 3]> (qs)
    qr, qt = Split <axis: int = -1> (qh, halves)
    both = MatMul (x, wa) low, st = Split <axis: int = -1> (both, parts)
    normed = RMSNormalization <axis: int = -1> (low, gamma)
    kv = MatMul (normed, wb) kvs = Reshape (kv, dozens)
    kvh = Transpose <perm: ints = [0, 2, 1, 3]> (kvs)
    kr, v = Split <axis: int = -1> (kvh, rest)
    kt = Unsqueeze (st, n1)
    """
    + ANGLES
    + """
    qe = Slice (qt, n0, half, n3, n2) qo = Slice (qt, n1, half, n3, n2)
    qa = Mul (qe, cos) qb = Mul (qo, sin) qc = Sub (qa, qb)
    qd = Mul (qo, cos) qf = Mul (qe, sin) qg = Add (qd, qf)
    q5 = Concat <axis: int = -1> (qr, qc, qg)
    ke = Slice (kt, n0, half, n3, n2) ko = Slice (kt, n1, half, n3, n2)
    ka = Mul (ke, cos) kb = Mul (ko, sin) kc = Sub (ka, kb)
    kd = Mul (ko, cos) kf = Mul (ke, sin) kg = Add (kd, kf)
    kj = Concat <axis: int = -1> (kc, kg) kx = Expand (kj, each)
    k5 = Concat <axis: int = -1> (kr, kx)
    """
    + ATTEND.format(q="q5", k="k5", v="v")
)


def latent() -> ir.Model:
    weights = {"wq": f32(6, 16) * 0.5, "wa": f32(6, 9) * 0.5, "wb": f32(5, 24) * 0.5}
    used = {k: v for k, v in CONSTANTS.items() if f"{k})" in LATENT or f"{k}," in LATENT}
    constants = {name: np.asarray(value) for name, value in used.items()}
    more: dict[str, np.ndarray] = {
        "frequencies": np.array([1.0, 0.3], np.float32),
        "halves": np.array([4, 4]),
        "parts": np.array([5, 4]),
        "dozens": np.array([0, 0, 2, 12]),
        "rest": np.array([4, 8]),
        "each": np.array([1, 2, 1, 1]),
        "gamma": f32(5, seed=8),
        "heads": np.array([0, 0, 2, 8]),
    }
    return exported(SIGNATURE, LATENT, weights, constants | more)


def test_heads_of_a_latent_and_of_columns_that_they_share() -> None:
    """Turning dimensions come first, in the rows of queries, too."""
    text, _ = after(latent(), *STEPS, SlicesToSplit())
    assert text.count("HeadConcat <num_heads = 2, shared = 1>") == 1
    assert text.count("RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 4") == 2
    assert text.count("Reshape") == text.count("Transpose") == text.count("Expand") == 0
    assert unchanged(latent(), inputs(), *STEPS, SlicesToSplit()) < 1e-5
    model = latent()
    for step in STEPS:
        step.run(model)
    rows = model.graph.initializers["wq.q"].const_value
    assert rows is not None
    whole = latent().graph.initializers["wq"].const_value
    assert whole is not None
    order = [4, 6, 5, 7, 0, 1, 2, 3]
    assert np.array_equal(rows.numpy(), whole.numpy()[:, [*order, *(8 + i for i in order)]])
