"""The tokens that a row of the step sees: causal, windowed, of its own chunk, or its ancestors in
a tree of rows."""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, integer, integers

#: Log2 of the deepest tree of rows that the body follows.
_GENERATIONS = 12


def visible(attributes: Attributes, *, tree: bool) -> list[str]:
    """The mask of the M columns that each of the T rows sees: [T, M]."""
    window, chunk = int(attributes["window"]), int(attributes["chunk"])
    seen, narrower = "past_own", []
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
            "row_chunk = Div (row_at, chunk)",
            "column_chunk = Div (column_at, chunk)",
            "same = Equal (row_chunk, column_chunk)",
            f"in_chunk = And ({seen}, same)",
        ]
        seen = "in_chunk"
    return [
        *row_places(),
        *_column_places(),
        *(_past_in_tree() if tree else _past_in_order()),
        "row_sequence_column = Unsqueeze (sequence, second)",
        "own = Equal (row_sequence_column, column_sequence)",
        "past_own = And (past, own)",
        *narrower,
        f"visible = Identity ({seen})",
    ]


def row_places() -> list[str]:
    """The sequence of each of the T rows, and its index in that sequence's KV."""
    return [
        integers("ends_stop", (1 << 31,)),
        "tokens_1 = Shape (slots)",
        "tokens = Squeeze (tokens_1, first)",
        "row = Range (zero, tokens, one)",
        "row_column = Unsqueeze (row, second)",
        "ends = Slice (starts, second, ends_stop, first)",
        "passed = GreaterOrEqual (row_column, ends)",
        "passed_count = Cast <to: int = 7> (passed)",
        "sequence_raw = ReduceSum <keepdims: int = 0> (passed_count, second)",
        "batch_1 = Shape (lengths)",
        "batch = Squeeze (batch_1, first)",
        "last = Sub (batch, one)",
        "sequence = Min (sequence_raw, last)",
        "shift = Sub (lengths, ends)",
        "row_shift = Gather <axis: int = 0> (shift, sequence)",
        "row_index = Add (row, row_shift)",
    ]


def _column_places() -> list[str]:
    """The sequence and the KV index of each of the M = B * P * block_size columns."""
    return [
        integers("minus_one", (-1,)),
        "columns_1 = Shape (read_index)",
        "columns = Squeeze (columns_1, first)",
        "column = Range (zero, columns, one)",
        "span = Div (columns, batch)",
        "column_sequence = Div (column, span)",
        "column_index = Mod (column, span)",
    ]


def _past_in_order() -> list[str]:
    """The distance of each column behind each row, and that it does not lie ahead: [T, M]; and
    where both lie."""
    return [
        "row_at = Unsqueeze (row_index, second)",
        "column_at = Identity (column_index)",
        "distance = Sub (row_at, column_at)",
        "past = GreaterOrEqual (distance, zero)",
    ]


def _past_in_tree() -> list[str]:
    """The same where rows descend from ``tree_parent``: of the step's rows only ancestors are past,
    and distances count along the path."""
    return [
        # reach [T, T]: itself, its parent, then as many more generations each time
        "parents = Cast <to: int = 7> (tree_parent)",
        "parent_column = Unsqueeze (parents, second)",
        "is_parent = Equal (parent_column, row)",
        "is_self = Equal (row_column, row)",
        "is_near = Or (is_parent, is_self)",
        "reach_0 = Cast <to: int = 1> (is_near)",
        *_doubled("reach", _GENERATIONS),
        f"generations = ReduceSum <keepdims: int = 0> (reach_{_GENERATIONS}, second)",
        "depth_1 = Cast <to: int = 7> (generations)",
        "depth = Sub (depth_1, one)",
        # tokens before the step, by sequence; where the path of a row stands
        "first_rows = Slice (starts, first, minus_one, first)",
        "new_rows = Sub (ends, first_rows)",
        "before = Sub (lengths, new_rows)",
        "row_before = Gather (before, sequence)",
        "row_place = Add (row_before, depth)",
        "row_at = Unsqueeze (row_place, second)",
        # the row of the step that a column holds, if it holds one
        "column_before = Gather (before, column_sequence)",
        "column_first = Gather (first_rows, column_sequence)",
        "column_length = Gather (lengths, column_sequence)",
        "column_offset = Sub (column_index, column_before)",
        "column_row_any = Add (column_offset, column_first)",
        "last_row = Sub (tokens, one)",
        "column_row = Clip (column_row_any, zero, last_row)",
        "is_new = GreaterOrEqual (column_offset, zero)",
        "column_depth = Gather (depth, column_row)",
        "column_path = Add (column_before, column_depth)",
        "column_at = Where (is_new, column_path, column_index)",
        f"column_reach = Gather <axis: int = 1> (reach_{_GENERATIONS}, column_row)",
        "is_ancestor = Cast <to: int = 9> (column_reach)",
        "is_known = Not (is_new)",
        "followed = Or (is_ancestor, is_known)",
        "is_written = Less (column_index, column_length)",
        "past = And (followed, is_written)",
        "distance = Sub (row_at, column_at)",
    ]


def _doubled(name: str, times: int) -> list[str]:
    """Statements that square a relation ``times`` times."""
    lines = []
    for i in range(times):
        lines.append(f"{name}_sum_{i} = MatMul ({name}_{i}, {name}_{i})")
        lines.append(f"{name}_{i + 1} = Sign ({name}_sum_{i})")
    return lines
