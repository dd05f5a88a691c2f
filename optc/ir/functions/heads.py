"""Body of the operator behind Medusa's heads (docs/normal-form.md)."""

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


OPERATORS = (
    Operator("ResidualHeads", ("x", "y"), ("out: float",), {"heads": int}, _residual_heads),
)
