"""Statements of operators that keep a state in each block of the KV pools: the rows of a step that
go on from one, and those that leave one.

A block's state is the one behind the last of its tokens that was computed and has a slot: drafts
have none, so that the state before them is there if they do not hold.
"""

from __future__ import annotations


def places() -> list[str]:
    """Of each row, behind `row_places`: whether it is the first of its sequence in the step
    (``is_first``), the block whose state it goes on from, ``block_before`` if it ``has_before``,
    and the block that gets its state, ``block_own`` if it is ``kept``."""
    return [
        "first_rows = Gather <axis: int = 0> (starts, sequence)",
        "is_first = Equal (row, first_rows)",
        "own_ends = Gather <axis: int = 0> (ends, sequence)",
        "next_row = Add (row, one)",
        "ends_sequence = Equal (next_row, own_ends)",
        "tokens_last = Sub (tokens, one)",
        "row_behind = Min (next_row, tokens_last)",
        "behind_written = Gather (written, row_behind)",
        "behind_unwritten = Not (behind_written)",
        "is_last = Or (ends_sequence, behind_unwritten)",
        "last_offset = Sub (block_size, one)",
        "offset = Mod (row_index, block_size)",
        "fills = Equal (offset, last_offset)",
        "ends_state = Or (is_last, fills)",
        "kept = And (ends_state, written)",
        "table_32 = Gather <axis: int = 0> (block_tables, group)",
        "table = Cast <to: int = 7> (table_32)",
        "pages_1 = Shape <start: int = 1, end: int = 2> (table)",
        "pages = Squeeze (pages_1, first)",
        "last_page = Sub (pages, one)",
        "sequence_column = Unsqueeze (sequence, second)",
        "index_before_raw = Sub (row_index, one)",
        "index_before = Max (index_before_raw, zero)",
        "has_before = GreaterOrEqual (index_before_raw, zero)",
        *_block("index_before", "block_before"),
        *_block("row_index", "block_own"),
    ]


def _block(index: str, block: str) -> list[str]:
    """``block`` [T]: that of the token ``index`` of each row's sequence; 0 where there is none."""
    return [
        f"{block}_page_raw = Div ({index}, block_size)",
        f"{block}_page = Min ({block}_page_raw, last_page)",
        f"{block}_column = Unsqueeze ({block}_page, second)",
        f"{block}_entry = Concat <axis: int = 1> (sequence_column, {block}_column)",
        f"{block}_raw = GatherND (table, {block}_entry)",
        f"{block} = Max ({block}_raw, zero)",
    ]


def new_states() -> list[str]:
    """``new_states``: the ``states`` [blocks, ...] of the pools with those of ``row_states``
    [T, ...] that are kept."""
    return [
        "kept_states = Compress <axis: int = 0> (row_states, kept)",
        "kept_blocks = Compress <axis: int = 0> (block_own, kept)",
        "kept_index = Unsqueeze (kept_blocks, second)",
        "new_states = ScatterND (states, kept_index, kept_states)",
    ]
