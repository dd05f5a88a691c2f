"""Body of the matmul by weights that are looked up in a table: types of few bits as storage.

A weight is table[code] · scale, the scale of its channel or of a group of channels' inputs. So any
type whose values are few is exact, whatever types a runtime has kernels for: NF4, MXFP4 and NVFP4
with 16 values, FP8 with 253.
"""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, Operator, integers


def _codebook_matmul(attributes: Attributes, present: frozenset[str]) -> str:
    group = int(attributes["group_size"])
    lines = [
        "codes = Cast <to: int = 6> (weight)",
        "values = Gather <axis: int = 0> (table, codes)",
    ]
    if group:
        lines += [
            integers("group_split", (-1, group)),
            integers("group_axis", (1,)),
            "w_shape = Shape (weight)",
            "w_columns = Shape <start: int = 1> (weight)",
            "grouped_shape = Concat <axis: int = 0> (group_split, w_columns)",
            "grouped = Reshape (values, grouped_shape)",
            "group_scales = Unsqueeze (w_scale, group_axis)",
            "scaled = Mul (grouped, group_scales)",
            "w = Reshape (scaled, w_shape)",
        ]
    else:
        lines.append("w = Mul (values, w_scale)")
    last = "unbiased" if "bias" in present else "y"
    lines.append(f"{last} = MatMul (x, w)")
    return "\n".join(lines + (["y = Add (unbiased, bias)"] if "bias" in present else []))


OPERATORS = (
    Operator(
        "CodebookMatMul",
        ("x", "weight", "table", "w_scale", "bias?"),
        ("y: float",),
        {"format": str, "group_size": int},
        _codebook_matmul,
        inert=frozenset({"format"}),
    ),
)
