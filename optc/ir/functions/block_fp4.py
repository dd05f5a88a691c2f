"""Body of the matmul in NVFP4: 4-bit floats in blocks of 16, with scales of two levels.

A value is q · s · g: q a float of 4 bits (E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives), s
the scale of its block (E4M3) and g one float32 of the whole tensor. ONNX Runtime has no kernel
for the type, so that the graph holds weights as 2q in int8, which is exact.
"""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, Operator, integers, real

#: Values that share a scale.
BLOCK = 16
#: Largest magnitudes of E2M1 and E4M3.
FP4_MAX, FP8_MAX = 6.0, 448.0


def _rounded(ratio: str, result: str) -> list[str]:
    """Statements: ``ratio`` to the nearest E2M1 value, halfway to the even one, saturating.

    Values are 0.5 apart below 2, 1 below 4 and 2 above; a multiple of the distance is even where
    the mantissa is.
    """
    return [
        real("least", -FP4_MAX),
        real("most", FP4_MAX),
        *(real(name, value) for name, value in (("half", 0.5), ("one", 1.0), ("two", 2.0))),
        real("four", 4.0),
        f"clipped = Clip ({ratio}, least, most)",
        "magnitude = Abs (clipped)",
        "is_small = Less (magnitude, two)",
        "is_middle = Less (magnitude, four)",
        "coarse = Where (is_middle, one, two)",
        "distance = Where (is_small, half, coarse)",
        "multiple = Div (clipped, distance)",
        "rounded = Round (multiple)",
        f"{result} = Mul (rounded, distance)",
    ]


def _activation() -> list[str]:
    """Statements: ``x`` [..., K] as its quantized values stand for, ``x_wide``."""
    return [
        integers("block_split", (-1, BLOCK)),
        integers("last_axis", (-1,)),
        real("largest", FP4_MAX),
        real("nothing", 0.0),
        real("unit", 1.0),
        "x_shape = Shape (x)",
        "x_rows = Shape <end: int = -1> (x)",
        "blocked_shape = Concat <axis: int = 0> (x_rows, block_split)",
        "blocks = Reshape (x, blocked_shape)",
        "sizes = Abs (blocks)",
        "peak = ReduceMax <keepdims: int = 1> (sizes, last_axis)",
        "level = Div (peak, largest)",
        "relative = Div (level, x_global)",
        "stored = Cast <to: int = 17> (relative)",
        "block_scale = Cast <to: int = 1> (stored)",
        "x_scale = Mul (block_scale, x_global)",
        "empty = Equal (x_scale, nothing)",
        "divisor = Where (empty, unit, x_scale)",
        "ratio = Div (blocks, divisor)",
        *_rounded("ratio", "x_values"),
        "x_blocks = Mul (x_values, x_scale)",
        "x_wide = Reshape (x_blocks, x_shape)",
    ]


def _weight() -> list[str]:
    """Statements: ``weight`` int8 [K, N], twice its values, as float32 ``w``."""
    return [
        integers("row_split", (-1, BLOCK)),
        integers("row_axis", (1,)),
        "w_shape = Shape (weight)",
        "w_columns = Shape <start: int = 1> (weight)",
        "w_blocked_shape = Concat <axis: int = 0> (row_split, w_columns)",
        "doubled = Cast <to: int = 1> (weight)",
        "w_doubled = Reshape (doubled, w_blocked_shape)",
        "w_values = Mul (w_doubled, half)",
        "w_scale_wide = Cast <to: int = 1> (w_scale)",
        "w_scale_global = Mul (w_scale_wide, w_global)",
        "w_scale_blocks = Unsqueeze (w_scale_global, row_axis)",
        "w_blocks = Mul (w_values, w_scale_blocks)",
        "w = Reshape (w_blocks, w_shape)",
    ]


def _block_fp4_matmul(attributes: Attributes, present: frozenset[str]) -> str:
    last = "unbiased" if "bias" in present else "y"
    lines = [*_activation(), *_weight(), f"{last} = MatMul (x_wide, w)"]
    return "\n".join(lines + (["y = Add (unbiased, bias)"] if "bias" in present else []))


OPERATORS = (
    Operator(
        "BlockFp4MatMul",
        ("x", "weight", "w_scale", "w_global", "x_global", "bias?"),
        ("y: float",),
        {},
        _block_fp4_matmul,
    ),
)
