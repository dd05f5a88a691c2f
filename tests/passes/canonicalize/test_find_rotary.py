"""`find-rotary` on text: rotate-half in, RotaryEmbedding out, the same numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.passes.canonicalize.find_rotary import FindRotary
from optc.passes.canonicalize.fold_heads import FoldHeads
from tests.passes.canonicalize.texts import after, exported, unchanged
from tests.support.ir_text import expected, f32

CONSTANTS = {
    "zero": np.array([0]),
    "half": np.array([4]),
    "size": np.array([8]),
    "end": np.array([12]),
    "last": np.array([3]),
    "factor": np.float32(1.5),
}
TABLE = "double = Concat <axis: int = -1> (angle, angle) c = Cos (double) s = Sin (double)"
ROTATE = """
    low = Slice (x, zero, half, last)
    high = Slice (x, half, size, last)
    minus = Neg (high)
    turned = Concat <axis: int = -1> (minus, low)
    straight_term = Mul (x, cos)
    turned_term = Mul (turned, sin)
    """


def model(
    layout: str = "B,4,S,8", table: str = TABLE, rotate: str = ROTATE, axis: int = 1
) -> ir.Model:
    unsqueeze = "cos = Unsqueeze (c, axis) sin = Unsqueeze (s, axis)"
    return exported(
        f"(float[{layout}] x, float[B,S,4] angle) => (float[{layout}] y)",
        f"{table} {unsqueeze} {rotate} y = Add (straight_term, turned_term)",
        {},
        {**CONSTANTS, "axis": np.array([axis])},
    )


def inputs(*shape: int) -> dict[str, np.ndarray]:
    return {"x": f32(*shape), "angle": f32(2, 5, 4)}


ROTARY = "RotaryEmbedding <num_heads = 4, rotary_embedding_dim = 8, interleaved = 0>"


def test_heads_before_tokens() -> None:
    text, report = after(model(), FindRotary())
    assert text == expected(f"""
        t0 = Cos (angle)
        t1 = Sin (angle)
        t2 = Transpose <perm: ints = [0, 2, 1, 3]> (x)
        t3 = Reshape (t2, to_0_0_rest)
        t4 = {ROTARY} (t3, t0, t1)
        t5 = Reshape (t4, to_0_0_4_8)
        y = Transpose <perm: ints = [0, 2, 1, 3]> (t5)
        """)
    assert report.details == {"rotary": 1}
    assert unchanged(model(), inputs(2, 4, 5, 8), FindRotary()) < 1e-6


def test_tokens_before_heads() -> None:
    text, _ = after(model("B,S,4,8", axis=2), FindRotary())
    assert text == expected(f"""
        t0 = Cos (angle)
        t1 = Sin (angle)
        t2 = Reshape (x, to_0_0_rest)
        t3 = {ROTARY} (t2, t0, t1)
        y = Reshape (t3, to_0_0_4_8)
        """)
    assert unchanged(model("B,S,4,8", axis=2), inputs(2, 5, 4, 8), FindRotary()) < 1e-6


def test_scaled_tables_are_halved_too() -> None:
    table = TABLE.replace("c = Cos (double)", "c1 = Cos (double) c = Mul (c1, factor)")
    text, _ = after(model(table=table), FindRotary())
    assert text.startswith("t0 = Cos (angle)\nt1 = Mul (t0, factor)\n")
    assert unchanged(model(table=table), inputs(2, 4, 5, 8), FindRotary()) < 1e-6


PARTIAL = """
    first = Slice (input, zero, size, last)
    rest = Slice (input, size, end, last)
    """


def partial(parts: str = PARTIAL) -> ir.Model:
    unsqueeze = "cos = Unsqueeze (c, axis) sin = Unsqueeze (s, axis)"
    rotate = ROTATE.replace("(x,", "(first,")
    return exported(
        "(float[B,4,S,12] input, float[B,S,4] angle) => (float[B,4,S,12] y)",
        f"{TABLE} {unsqueeze} {parts} {rotate} rotated = Add (straight_term, turned_term)"
        " y = Concat <axis: int = -1> (rotated, rest)",
        {},
        {**CONSTANTS, "axis": np.array([1])},
    )


def test_partial_rotary() -> None:
    text, _ = after(partial(), FindRotary(), FoldHeads())
    assert text == expected("""
        t0 = Cos (angle)
        t1 = Sin (angle)
        t2 = Transpose <perm: ints = [0, 2, 1, 3]> (input)
        t3 = Reshape (t2, to_0_0_rest)
        t4 = RotaryEmbedding <num_heads = 4, rotary_embedding_dim = 8, interleaved = 0> (t3, t0, t1)
        t5 = Reshape (t4, to_0_0_4_12)
        y = Transpose <perm: ints = [0, 2, 1, 3]> (t5)
        """)
    values = {"input": f32(2, 4, 5, 12), "angle": f32(2, 5, 4)}
    assert unchanged(partial(), values, FindRotary()) < 1e-6


def test_partial_rotary_of_the_wrong_end_is_a_miss() -> None:
    parts = "first = Slice (input, half, end, last) rest = Slice (input, zero, half, last)"
    report = FindRotary().run(partial(parts))
    assert report.details == {"rotary": 1}
    assert report.skipped[0].endswith(
        "not a partial rotary embedding I know: the rotated part is not first"
    )


OTHER = "other = Neg (angle) " + TABLE.replace("(angle, angle)", "(angle, other)")
NEAR = {
    "cos or sin is not that of an angle concatenated with itself": model(table=OTHER),
    "the other term is not the same x times cos": model(
        rotate=ROTATE.replace("Mul (x, cos)", "Mul (turned, cos)")
    ),
    "its operand has shape ['B', 'H', 'S', 8], not heads": model("B,H,S,8"),
    "cos or sin is not that of an angle concatenated with itself ": model("B,S,4,8", axis=1),
}


@pytest.mark.parametrize("message", NEAR)
def test_near_misses_say_why(message: str) -> None:
    report = FindRotary().run(NEAR[message])
    assert report.count == 0
    assert report.skipped[0].endswith(f"not a rotary embedding I know: {message.strip()}")
