"""The body of attention over slots: each sequence has one contiguous slot of keys and values.

Keys and values are written by TensorScatter and scored against whole slots under an explicit mask,
in standard operators of opset 24.
"""

from __future__ import annotations

from optc.ir.functions.operator import (
    Attributes,
    integer,
    integers,
    literal,
    real,
)

#: A score that no softmax lets through, yet finite.
_MASKED = -3.0e38


def slots(attributes: Attributes) -> str:
    """Statements: rows q [B, S, H*Dk] over slots [B, Hkv, Smax, D] with k, v [B, S, Hkv*D]
    written at ``write_indices`` [B] and behind, to ``out`` [B, S, H*Dv]."""
    return "\n".join(
        [
            *_written("k", attributes),
            *_written("v", attributes),
            *_mask(int(attributes["window"])),
            *(_capped(attributes) if attributes["softcap"] else _plain(attributes)),
        ]
    )


def _written(kind: str, attributes: Attributes) -> list[str]:
    """``present_{kind}``: the slots with the new rows."""
    return [
        integers(f"{kind}_split", (0, 0, int(attributes["kv_num_heads"]), -1)),
        f"{kind}_heads = Reshape ({kind}, {kind}_split)",
        f"{kind}_by_head = Transpose <perm: ints = [0, 2, 1, 3]> ({kind}_heads)",
        f"present_{kind} = TensorScatter <axis: int = -2>"
        f" (past_{kind}, {kind}_by_head, write_indices)",
    ]


def _mask(window: int) -> list[str]:
    """``mask`` [B, 1, S, Smax]: which token of its slot each row sees. It depends on shapes and
    ``write_indices`` alone, so that all layers of a window can share one."""
    return [
        integer("zero", 0),
        integer("one", 1),
        integers("first", (0,)),
        integers("row_axes", (1, 2, 3)),
        integers("column_axis", (1,)),
        "rows_1 = Shape <start: int = 1, end: int = 2> (q)",
        "rows = Squeeze (rows_1, first)",
        "row = Range (zero, rows, one)",
        "row_column = Unsqueeze (row, column_axis)",
        "columns_1 = Shape <start: int = 2, end: int = 3> (past_k)",
        "columns = Squeeze (columns_1, first)",
        "column = Range (zero, columns, one)",
        "before = Unsqueeze (write_indices, row_axes)",
        "place = Add (before, row_column)",
        f"{'past' if window else 'mask'} = LessOrEqual (column, place)",
        *(
            [
                integer("window", window),
                "distance = Sub (place, column)",
                "near = Less (distance, window)",
                "mask = And (past, near)",
            ]
            if window
            else []
        ),
    ]


def _plain(attributes: Attributes) -> list[str]:
    scale = literal(float(attributes["scale"]))
    return [
        integers("q_split", (0, 0, int(attributes["num_heads"]), -1)),
        "q_heads = Reshape (q, q_split)",
        "q_by_head = Transpose <perm: ints = [0, 2, 1, 3]> (q_heads)",
        f"attended = Attention <scale: float = {scale}> (q_by_head, present_k, present_v, mask)",
        "by_token = Transpose <perm: ints = [0, 2, 1, 3]> (attended)",
        integers("out_merge", (0, 0, -1)),
        "out = Reshape (by_token, out_merge)",
    ]


def _capped(attributes: Attributes) -> list[str]:
    """With a softcap, in operators of their own: not every engine's Attention has one."""
    kv_heads = int(attributes["kv_num_heads"])
    group = int(attributes["num_heads"]) // kv_heads
    return [
        real("scale", float(attributes["scale"])),
        real("softcap", float(attributes["softcap"])),
        real("masked", _MASKED),
        integers("group_axis", (2,)),
        integers("q_split", (0, 0, kv_heads, group, -1)),
        "q_heads = Reshape (q, q_split)",
        "q_by_head = Transpose <perm: ints = [0, 2, 3, 1, 4]> (q_heads)",
        "keys = Transpose <perm: ints = [0, 1, 3, 2]> (present_k)",
        "keys_shared = Unsqueeze (keys, group_axis)",
        "products = MatMul (q_by_head, keys_shared)",
        "scaled = Mul (products, scale)",
        "ratio = Div (scaled, softcap)",
        "bent = Tanh (ratio)",
        "score = Mul (bent, softcap)",
        "mask_shared = Unsqueeze (mask, group_axis)",
        "kept = Where (mask_shared, score, masked)",
        "weights = Softmax <axis: int = -1> (kept)",
        "values_shared = Unsqueeze (present_v, group_axis)",
        "attended = MatMul (weights, values_shared)",
        "by_token = Transpose <perm: ints = [0, 3, 1, 2, 4]> (attended)",
        integers("out_merge", (0, 0, -1)),
        "out = Reshape (by_token, out_merge)",
    ]
