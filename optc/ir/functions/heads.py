"""Bodies of operators over heads: Medusa's, and heads that meet a matrix each."""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, Operator, integers


def _residual_heads(attributes: Attributes, present: frozenset[str]) -> str:
    return "\n".join(
        [
            integers("second", (1,)),
            integers("lead", (-1, int(attributes["heads"]))),
            integers("flat", (-1,)),
            "width = Shape <start: int = 1> (x)",
            "by_head = Concat <axis: int = 0> (lead, width)",
            "rows = Concat <axis: int = 0> (flat, width)",
            "gate = Sigmoid (y)",
            "activated = Mul (y, gate)",
            "split = Reshape (activated, by_head)",
            "shared = Unsqueeze (x, second)",
            "sum = Add (shared, split)",
            "out = Reshape (sum, rows)",
        ]
    )


def _split_heads(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: x [..., H*D] as [..., H, D], and beside it the number of each head, [..., H]."""
    heads = int(attributes["num_heads"])
    return "\n".join(
        [
            "lead = Shape <end: int = -1> (x)",
            integers("tail", (heads, -1)),
            "by_head = Concat <axis: int = 0> (lead, tail)",
            "y = Reshape (x, by_head)",
            integers("count", (heads,)),
            "wide = Concat <axis: int = 0> (lead, count)",
            integers("numbers", tuple(range(heads))),
            "each = Expand (numbers, wide)",
            "heads = Cast <to: int = 6> (each)",
        ]
    )


def _merge_heads(attributes: Attributes, present: frozenset[str]) -> str:
    return "\n".join(
        [
            "lead = Shape <end: int = -2> (x)",
            integers("rest", (-1,)),
            "flat = Concat <axis: int = 0> (lead, rest)",
            "y = Reshape (x, flat)",
        ]
    )


OPERATORS = (
    Operator("SplitHeads", ("x",), ("y: float", "heads: int32"), {"num_heads": int}, _split_heads),
    Operator("MergeHeads", ("x",), ("y: float",), {}, _merge_heads),
    Operator("ResidualHeads", ("x", "y"), ("out: float",), {"heads": int}, _residual_heads),
)
