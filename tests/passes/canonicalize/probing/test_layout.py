"""Orders of turning dimensions that one rotary operator can turn."""

from __future__ import annotations

import numpy as np
import pytest

from optc.passes.canonicalize.probing.layout import Rotary, common_order, rotary_of, shared_first
from optc.passes.canonicalize.probing.read import Reading, Turn

HALVES = Turn(((0, 2), (1, 3)), (1.0, 0.1), 2.0)
NEIGHBOURS = Turn(((0, 1), (2, 3)), (1.0, 0.1), 2.0)
#: Of six dimensions four turn, between the others.
SCATTERED = Turn(((5, 1), (3, 0)), (1.0, 0.1), 1.0)


def reading(turn: Turn | None, *heads: list[int]) -> Reading:
    return Reading(np.array(heads), 1.0, turn)


@pytest.mark.parametrize(
    ("turn", "order", "found"),
    [
        (HALVES, [0, 1, 2, 3], Rotary((1.0, 0.1), 2.0, False)),
        (HALVES, [1, 0, 3, 2], Rotary((0.1, 1.0), 2.0, False)),
        (HALVES, [0, 2, 1, 3], Rotary((1.0, 0.1), 2.0, True)),
        (HALVES, [1, 3, 0, 2], Rotary((0.1, 1.0), 2.0, True)),
        (HALVES, [2, 3, 0, 1], Rotary((-1.0, -0.1), 2.0, False)),
        (HALVES, [2, 0, 3, 1], Rotary((-1.0, -0.1), 2.0, True)),
        (HALVES, [0, 3, 2, 1], None),
        (NEIGHBOURS, [0, 1, 2, 3], Rotary((1.0, 0.1), 2.0, True)),
        (NEIGHBOURS, [0, 2, 1, 3], Rotary((1.0, 0.1), 2.0, False)),
        (NEIGHBOURS, [2, 0, 3, 1], Rotary((0.1, 1.0), 2.0, False)),
        (SCATTERED, [5, 3, 1, 0, 2, 4], Rotary((1.0, 0.1), 1.0, False)),
        (SCATTERED, [5, 1, 3, 0, 2, 4], Rotary((1.0, 0.1), 1.0, True)),
        (SCATTERED, [2, 5, 3, 1, 0, 4], None),
    ],
)
def test_an_order_turns_by_one_operator_or_by_none(
    turn: Turn, order: list[int], found: Rotary | None
) -> None:
    assert rotary_of(turn, order) == found


def test_the_order_of_columns_is_kept_where_an_operator_turns_it() -> None:
    """Dimension 0 is column 3: in the order of columns, weights stay as they are."""
    moved = reading(HALVES, [1, 0, 3, 2], [1, 0, 3, 2])
    assert common_order([moved]) == [1, 0, 3, 2]
    assert common_order([moved, reading(None, [1, 0, 3, 2])]) == [1, 0, 3, 2]


def test_else_the_order_that_there_is_where_an_operator_turns_that() -> None:
    assert common_order([reading(HALVES, [0, 3, 2, 1])]) == [0, 1, 2, 3]
    different = [reading(HALVES, [1, 0, 3, 2]), reading(None, [0, 1, 2, 3])]
    assert common_order(different) == [0, 1, 2, 3], "no order of columns is theirs in common"


def test_else_firsts_seconds_and_the_rest() -> None:
    still = reading(None, [0, 1, 2, 3, 4, 5])
    assert common_order([still, reading(SCATTERED, [0, 1, 2, 3, 4, 5])]) == [3, 5, 0, 1, 2, 4]


def test_dimensions_of_a_column_that_all_heads_share_come_first() -> None:
    """Of keys that do not turn, too; queries, whose heads share nothing, follow them."""
    keys = Reading(np.array([[4, 0, 5, 1], [4, 2, 5, 3]]), 1.0, None)
    queries = Reading(np.arange(8).reshape(2, 4), 1.0, None)
    assert shared_first([queries, keys], [0, 1, 2, 3]) == [0, 2, 1, 3]
    assert shared_first([queries], [3, 1, 0, 2]) == [3, 1, 0, 2]
    one_head = Reading(np.array([[4, 0, 5, 1]]), 1.0, None)
    assert shared_first([queries, one_head], [0, 1, 2, 3]) == [0, 1, 2, 3]
