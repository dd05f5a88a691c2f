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


def slots(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: rows q [B, S, H*Dk] over slots [B, Hkv, Smax, D] with k, v [B, S, Hkv*D]
    written at ``write_indices`` [B] and behind, to ``out`` [B, S, H*Dv]."""
    spelled = attributes["softcap"] or present & {"sinks", "alibi_slopes"}
    return "\n".join(
        [
            *_written("k", attributes),
            *_written("v", attributes),
            *_mask(int(attributes["window"]), int(attributes["chunk"])),
            *(_spelled(attributes, present) if spelled else _plain(attributes)),
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


def _mask(window: int, chunk: int) -> list[str]:
    """``mask`` [B, 1, S, Smax]: which token of its slot each row sees. It depends on shapes and
    ``write_indices`` alone, so that all layers of a window can share one."""
    seen, narrower = "past", []
    if window:
        narrower += [
            integer("window", window),
            "near = Less (distance, window)",
            f"in_window = And ({seen}, near)",
        ]
        seen = "in_window"
    if chunk:
        narrower += [
            integer("chunk", chunk),
            "row_chunk = Div (place, chunk)",
            "column_chunk = Div (column, chunk)",
            "same = Equal (row_chunk, column_chunk)",
            f"in_chunk = And ({seen}, same)",
        ]
        seen = "in_chunk"
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
        "past = LessOrEqual (column, place)",
        "distance = Sub (place, column)",
        *narrower,
        f"mask = Identity ({seen})",
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


def _spelled(attributes: Attributes, present: frozenset[str]) -> list[str]:
    """In operators of their own: not every engine's Attention has softcap, sinks and slopes."""
    kv_heads = int(attributes["kv_num_heads"])
    group = int(attributes["num_heads"]) // kv_heads
    capped = [
        real("softcap", float(attributes["softcap"])),
        "ratio = Div (scaled, softcap)",
        "bent = Tanh (ratio)",
        "capped = Mul (bent, softcap)",
    ]
    score = "capped" if attributes["softcap"] else "scaled"
    leaning, sinks = "alibi_slopes" in present, "sinks" in present
    return [
        real("scale", float(attributes["scale"])),
        real("masked", _MASKED),
        integers("group_axis", (2,)),
        integers("q_split", (0, 0, kv_heads, group, -1)),
        "q_heads = Reshape (q, q_split)",
        "q_by_head = Transpose <perm: ints = [0, 2, 3, 1, 4]> (q_heads)",
        "keys = Transpose <perm: ints = [0, 1, 3, 2]> (present_k)",
        "keys_shared = Unsqueeze (keys, group_axis)",
        "products = MatMul (q_by_head, keys_shared)",
        "scaled = Mul (products, scale)",
        *(capped if attributes["softcap"] else []),
        "mask_shared = Unsqueeze (mask, group_axis)",
        integers("by_head", (1, kv_heads, group, 1, 1)),
        *(_leaning(score) if leaning else []),
        f"kept = Where (mask_shared, {'leaning' if leaning else score}, masked)",
        *(_with_sinks() if sinks else ["weights = Softmax <axis: int = -1> (kept)"]),
        "values_shared = Unsqueeze (present_v, group_axis)",
        "attended = MatMul (weights, values_shared)",
        "by_token = Transpose <perm: ints = [0, 3, 1, 2, 4]> (attended)",
        integers("out_merge", (0, 0, -1)),
        "out = Reshape (by_token, out_merge)",
    ]


def _leaning(score: str) -> list[str]:
    """Scores [B, Hkv, G, S, Smax] less what slopes take for the distance."""
    return [
        "slopes = Reshape (alibi_slopes, by_head)",
        "behind = Cast <to: int = 1> (distance)",
        "behind_shared = Unsqueeze (behind, group_axis)",
        "lost = Mul (slopes, behind_shared)",
        f"leaning = Sub ({score}, lost)",
    ]


def _with_sinks() -> list[str]:
    """A column in front of the scores, which goes away again."""
    return [
        "sink = Reshape (sinks, by_head)",
        "sink_lead = Shape <start: int = 0, end: int = 4> (kept)",
        integers("one_column", (1,)),
        "sink_shape = Concat <axis: int = 0> (sink_lead, one_column)",
        "sink_wide = Expand (sink, sink_shape)",
        "kept_sunk = Concat <axis: int = -1> (sink_wide, kept)",
        "weights_sunk = Softmax <axis: int = -1> (kept_sunk)",
        integers("to_end", (1 << 31,)),
        integers("last_axis", (-1,)),
        "weights = Slice (weights_sunk, column_axis, to_end, last_axis)",
    ]
