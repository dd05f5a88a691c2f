"""Bodies of the causal convolution of each channel along a sequence: dense, and over paged pools.

Row i of a sequence is the sum over j < kernel of weight[:, kernel - 1 - j] times row i - j, rows
before the first one being zeros: PyTorch's depthwise ``conv1d`` with kernel - 1 rows of padding in
front (LFM2's short convolutions; those of Mamba: Gu and Dao, arXiv:2312.00752, section 3.4).

In pools, the first numbers of a block are its state, the K-1 rows up to the last of its tokens that
was computed, the oldest first: half of the channels in the pool of keys, the other half in that of
values (`optc.runtime.executable.recurrent_state`).
"""

from __future__ import annotations

from optc.ir.functions.mixing.paged_attention import step_constants, write_slots
from optc.ir.functions.mixing.state_blocks import new_states, places
from optc.ir.functions.mixing.visible_tokens import row_places
from optc.ir.functions.operator import Attributes, Operator, integers, real
from optc.runtime.executable.recurrent_state import row_stride

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
    """Statements: x [T, C], and what pools hold of the rows before, to ``out`` [T, C]; behind the
    last row of each sequence, and of each block, the last K-1 rows are kept."""
    scan = (
        "Scan <num_scan_inputs: int = 3, body: graph = row ("
        "float[R, C] before, float[C] row_x, bool row_first, float[R, C] row_loaded)"
        " => (float[R, C] after, float[K, C] row_window, float[R, C] row_state) {\n"
        + "\n".join(_slide())
        + "\n}>"
    )
    return "\n".join(
        [
            *step_constants(attributes),
            *write_slots(),
            *row_places(),
            *places(),
            *_read(attributes),
            f"left, windows, row_states = {scan} (nothing_yet, x, is_first, loaded)",
            "taps_by_row = Transpose <perm: ints = [1, 0]> (weight)",
            "products = Mul (windows, taps_by_row)",
            "sums = ReduceSum <keepdims: int = 0> (products, second)",
            f"out = {'Add (sums, bias)' if 'bias' in present else 'Identity (sums)'}",
            *_write(attributes),
        ]
    )


def _slide() -> list[str]:
    """One row's statements: the rows ``before`` it [K-1, C], or those that are loaded, and itself
    are the window; all but its first row are ``after``."""
    return [
        "from_state = Where (row_first, row_loaded, before)",
        integers("rows_axis", (0,)),
        "own = Unsqueeze (row_x, rows_axis)",
        "row_window = Concat <axis: int = 0> (from_state, own)",
        integers("second_row", (1,)),
        integers("rows_end", (1 << 31,)),
        "after = Slice (row_window, second_row, rows_end, rows_axis)",
        "row_state = Identity (after)",
    ]


def _sizes(attributes: Attributes) -> tuple[int, int, int]:
    """Rows of a state, channels in each pool, and the numbers from one row to the next there."""
    channels = int(attributes["channels"])
    return int(attributes["kernel"]) - 1, channels // 2, row_stride(channels)


def _read(attributes: Attributes) -> list[str]:
    """``states`` [blocks, K-1, C] of the pools; ``loaded`` [T, K-1, C], from which each row would
    go on."""
    rows, half, stride = _sizes(attributes)
    lines = [
        integers("of_block", (0, -1)),
        integers("state_begin", (0,)),
        integers("state_end", (rows * stride,)),
        integers("half_shape", (0, rows, stride)),
        integers("channels_end", (half,)),
        integers("channels_axis", (2,)),
    ]
    for kind in "kv":
        lines += [
            f"{kind}_flat = Reshape ({kind}_pool, of_block)",
            f"{kind}_numbers = Slice ({kind}_flat, state_begin, state_end, second)",
            f"{kind}_rows = Reshape ({kind}_numbers, half_shape)",
            f"{kind}_half = Slice ({kind}_rows, state_begin, channels_end, channels_axis)",
        ]
    return [
        *lines,
        "states = Concat <axis: int = 2> (k_half, v_half)",
        "states_before = Gather <axis: int = 0> (states, block_before)",
        integers("state_axes", (1, 2)),
        "has_state = Unsqueeze (has_before, state_axes)",
        real("nothing", 0.0),
        "loaded = Where (has_state, states_before, nothing)",
        integers("state_shape", (rows, 2 * half)),
        "nothing_yet = Expand (nothing, state_shape)",
    ]


def _write(attributes: Attributes) -> list[str]:
    """The pools with the states of rows that are kept."""
    rows, half, stride = _sizes(attributes)
    lines = [
        *new_states(),
        "k_new, v_new = Split <axis: int = 2, num_outputs: int = 2> (new_states)",
        integers("flat_shape", (0, rows * stride)),
        integers("rest_end", (1 << 31,)),
        integers("padding", (0, 0, 0, 0, 0, stride - half)),
    ]
    for kind in "kv":
        lines += [
            f"{kind}_padded = Pad ({kind}_new, padding)",
            f"{kind}_new_numbers = Reshape ({kind}_padded, flat_shape)",
            f"{kind}_other = Slice ({kind}_flat, state_end, rest_end, second)",
            f"{kind}_whole = Concat <axis: int = 1> ({kind}_new_numbers, {kind}_other)",
            f"{kind}_shape = Shape ({kind}_pool)",
            f"{kind}_pool_out = Reshape ({kind}_whole, {kind}_shape)",
        ]
    return lines


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
