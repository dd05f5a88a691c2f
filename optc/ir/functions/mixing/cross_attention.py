"""Bodies of attention to the states of an encoder: dense, and over paged pools that a step only
reads (Vaswani et al., arXiv:1706.03762, section 3.2.3)."""

from __future__ import annotations

from optc.ir.functions.mixing.paged_attention import read_slots, scores, step_constants
from optc.ir.functions.operator import Attributes, Operator, integers, literal

_SHAPE = {"num_heads": int, "kv_num_heads": int, "scale": float}


def _dense(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: q [B, S, H*Dk] over k, v [B, P, Hkv*D] to ``out`` [B, S, H*Dv]."""
    options = (
        f"q_num_heads: int = {attributes['num_heads']},"
        f" kv_num_heads: int = {attributes['kv_num_heads']},"
        f" scale: float = {literal(float(attributes['scale']))}"
    )
    return f"out = Attention <{options}> (q, k, v)"


def _paged(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: rows q [T, H*Dk] over all that the pools hold of their sequence to ``out``."""
    plain = {**attributes, "softcap": 0.0, "query_bits": 0}
    return "\n".join(
        [
            *step_constants(attributes),
            *read_slots(),
            *_seen(),
            *_read("k", attributes["kv_num_heads"]),
            *_read("v", attributes["kv_num_heads"]),
            *scores("q", plain, frozenset()),
        ]
    )


def _seen() -> list[str]:
    """``visible`` [T, M]: the columns of a row's own sequence that are filled."""
    return [
        integers("ends_stop", (1 << 31,)),
        "tokens_1 = Shape <start: int = 0, end: int = 1> (q)",
        "tokens = Squeeze (tokens_1, first)",
        "row = Range (zero, tokens, one)",
        "row_column = Unsqueeze (row, second)",
        "ends = Slice (starts, second, ends_stop, first)",
        "passed = GreaterOrEqual (row_column, ends)",
        "passed_count = Cast <to: int = 7> (passed)",
        "sequence = ReduceSum <keepdims: int = 1> (passed_count, second)",
        "batch_1 = Shape (lengths)",
        "batch = Squeeze (batch_1, first)",
        "columns_1 = Shape (read_index)",
        "columns = Squeeze (columns_1, first)",
        "column = Range (zero, columns, one)",
        "span = Div (columns, batch)",
        "column_sequence = Div (column, span)",
        "column_index = Mod (column, span)",
        "column_length = Gather (lengths, column_sequence)",
        "filled = Less (column_index, column_length)",
        "own = Equal (sequence, column_sequence)",
        "visible = And (own, filled)",
    ]


def _read(kind: str, heads: object) -> list[str]:
    """``{kind}_seen`` [Hkv, M, D] of a pool [blocks, Hkv, block_size, D]."""
    pool = f"{kind}_pool"
    return [
        f"{kind}_by_token = Transpose <perm: ints = [0, 2, 1, 3]> ({pool})",
        f"{kind}_dim = Shape <start: int = 3> ({pool})",
        integers(f"{kind}_lead", (-1, int(str(heads)))),
        f"{kind}_flat_shape = Concat <axis: int = 0> ({kind}_lead, {kind}_dim)",
        f"{kind}_flat = Reshape ({kind}_by_token, {kind}_flat_shape)",
        f"{kind}_read = Gather <axis: int = 0> ({kind}_flat, read_index)",
        f"{kind}_seen = Transpose <perm: ints = [1, 0, 2]> ({kind}_read)",
    ]


OPERATORS = (
    Operator("CrossAttention", ("q", "k", "v"), ("out: float",), _SHAPE, _dense),
    Operator(
        "PagedCrossAttention",
        ("q", "k_pool", "v_pool", "query_starts", "kv_lengths", "block_tables"),
        ("out: float",),
        {**_SHAPE, "group": int, "layer": int, "kv_dtype": str},
        _paged,
        inert=frozenset({"layer"}),
    ),
)
