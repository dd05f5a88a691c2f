"""Bodies of the causal convolution of each channel along a sequence: dense, and over paged pools.

Row i of a sequence is the sum over j < kernel of weight[:, kernel - 1 - j] times row i - j, rows
before the first one being zeros: PyTorch's depthwise ``conv1d`` with kernel - 1 rows of padding in
front (LFM2's short convolutions; those of Mamba: Gu and Dao, arXiv:2312.00752, section 3.4).
"""

from __future__ import annotations

from optc.ir.functions.mixing.paged_attention import step_constants, write_slots
from optc.ir.functions.mixing.visible_tokens import row_places
from optc.ir.functions.operator import Attributes, Operator, integer, integers, real

_SHAPE = {"channels": int, "kernel": int}


def _dense(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: x [B, S, C] behind ``past`` [B, K-1, C], or zeros, to ``out`` [B, S, C]; and the
    last K-1 rows of both, ``present``."""
    channels, kernel = int(attributes["channels"]), int(attributes["kernel"])
    before = 0 if "past" in present else kernel - 1
    bias = ", bias" if "bias" in present else ""
    lines = [
        integers("filter_axis", (1,)),
        "filters = Unsqueeze (weight, filter_axis)",
        "rows = Concat <axis: int = 1> (past, x)" if "past" in present else "rows = Identity (x)",
        "by_channel = Transpose <perm: ints = [0, 2, 1]> (rows)",
        f"sums = Conv <group: int = {channels}, pads: ints = [{before}, 0]>"
        f" (by_channel, filters{bias})",
        "out = Transpose <perm: ints = [0, 2, 1]> (sums)",
    ]
    if "past" in present:
        lines += [
            integers("from_last", (-(kernel - 1),)),
            integers("to_end", (1 << 31,)),
            "present = Slice (rows, from_last, to_end, filter_axis)",
        ]
    return "\n".join(lines)


def _paged(attributes: Attributes, present: frozenset[str]) -> str:
    """Statements: x [T, C], and what pools hold of the rows before, to ``out`` [T, C]."""
    channels, kernel = int(attributes["channels"]), int(attributes["kernel"])
    half = channels // 2
    return "\n".join(
        [
            *step_constants(attributes),
            *write_slots(),
            *row_places(),
            integers("halves", (half, channels - half)),
            "k_half, v_half = Split <axis: int = -1> (x, halves)",
            *_written("k", half),
            *_written("v", channels - half),
            "first_rows = Gather <axis: int = 0> (starts, sequence)",
            "table_32 = Gather <axis: int = 0> (block_tables, group)",
            "table = Cast <to: int = 7> (table_32)",
            "pages_1 = Shape <start: int = 1, end: int = 2> (table)",
            "pages = Squeeze (pages_1, first)",
            "last_page = Sub (pages, one)",
            real("nothing", 0.0),
            *(line for behind in range(kernel) for line in _tap(behind, kernel)),
            "out = Sum ("
            + ", ".join([f"part_{behind}" for behind in range(kernel)])
            + (", bias)" if "bias" in present else ")"),
        ]
    )


def _written(kind: str, dim: int) -> list[str]:
    """Rows [T, D] at their slots in a pool [blocks, 1, block_size, D]: ``{kind}_slots`` [M, D]."""
    pool = f"{kind}_pool"
    return [
        integers(f"{kind}_flat_shape", (-1, dim)),
        f"{kind}_shape = Shape ({pool})",
        f"{kind}_flat = Reshape ({pool}, {kind}_flat_shape)",
        f"{kind}_kept = Compress <axis: int = 0> ({kind}_half, written)",
        f"{kind}_slots = ScatterND ({kind}_flat, write_index, {kind}_kept)",
        f"{kind}_pool_out = Reshape ({kind}_slots, {kind}_shape)",
    ]


def _tap(behind: int, kernel: int) -> list[str]:
    """``part_{behind}`` [T, C]: the rows so far behind, by their weight."""
    n = str(behind)
    return [
        integer(f"behind_{n}", behind),
        integer(f"tap_{n}", kernel - 1 - behind),
        # a row of this step is read from x
        f"row_{n}_raw = Sub (row, behind_{n})",
        f"row_{n} = Max (row_{n}_raw, zero)",
        f"x_{n} = Gather <axis: int = 0> (x, row_{n})",
        f"is_new_{n} = GreaterOrEqual (row_{n}_raw, first_rows)",
        f"is_new_column_{n} = Unsqueeze (is_new_{n}, second)",
        # an earlier one from the pools
        f"at_{n}_raw = Sub (row_index, behind_{n})",
        f"at_{n} = Max (at_{n}_raw, zero)",
        f"page_{n}_raw = Div (at_{n}, block_size)",
        f"page_{n} = Min (page_{n}_raw, last_page)",  # rows behind the last sequence
        f"offset_{n} = Mod (at_{n}, block_size)",
        f"sequence_column_{n} = Unsqueeze (sequence, second)",
        f"page_column_{n} = Unsqueeze (page_{n}, second)",
        f"entry_{n} = Concat <axis: int = 1> (sequence_column_{n}, page_column_{n})",
        f"block_{n}_raw = GatherND (table, entry_{n})",
        f"block_{n} = Max (block_{n}_raw, zero)",
        f"base_{n} = Mul (block_{n}, block_size)",
        f"slot_{n} = Add (base_{n}, offset_{n})",
        f"k_{n} = Gather <axis: int = 0> (k_slots, slot_{n})",
        f"v_{n} = Gather <axis: int = 0> (v_slots, slot_{n})",
        f"pooled_{n} = Concat <axis: int = 1> (k_{n}, v_{n})",
        f"exists_{n} = GreaterOrEqual (at_{n}_raw, zero)",
        f"exists_column_{n} = Unsqueeze (exists_{n}, second)",
        f"earlier_{n} = Where (exists_column_{n}, pooled_{n}, nothing)",
        f"read_{n} = Where (is_new_column_{n}, x_{n}, earlier_{n})",
        f"weight_{n} = Gather <axis: int = 1> (weight, tap_{n})",
        f"part_{n} = Mul (read_{n}, weight_{n})",
    ]


OPERATORS = (
    Operator(
        "CausalConv",
        ("x", "weight", "bias?", "past?"),
        ("out: float", "present: float if past"),
        _SHAPE,
        _dense,
    ),
    Operator(
        "PagedCausalConv",
        (
            *("x", "weight", "bias?", "k_pool", "v_pool"),
            *("slot_mapping", "query_starts", "kv_lengths", "block_tables"),
        ),
        ("out: float", "k_pool_out: float", "v_pool_out: float"),
        {**_SHAPE, "group": int, "layer": int},
        _paged,
        inert=frozenset({"layer"}),
    ),
)
