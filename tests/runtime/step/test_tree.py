"""Trees of drafts: where rows stand, and what moves once a path is accepted."""

from __future__ import annotations

import numpy as np

from optc.runtime.executable.executable import Int32
from optc.runtime.requests.request import Request
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.step.tree import Accepted, compacted_slots, deepest_path, place_drafts
from tests.runtime.support.requests import make_request


def int32(*values: int) -> Int32:
    return np.array(values, np.int32)


def drafting(tokens: list[int], parents: list[int] | None) -> Request:
    request = make_request([1, 2, 3], max_length=20)
    request.draft(tokens, parents)
    return request


def test_chains_stand_where_they_lie() -> None:
    request = drafting([5, 6], None)
    indices = int32(2, 3, 4)
    positions, parents = place_drafts([Chunk(request, 2, 3, 2)], int32(0, 3), indices)
    assert positions is indices
    assert parents is None


def test_a_tree_for_which_there_are_no_rows_is_none() -> None:
    request = drafting([5, 6], [-1, -1])
    positions, parents = place_drafts([Chunk(request, 2, 1, 0)], int32(0, 1), int32(2))
    assert (positions.tolist(), parents) == ([2], None)


def test_rows_of_a_tree_stand_behind_their_parents() -> None:
    """A prefill of two rows, then a tree of four drafts of which there are rows for three."""
    prefill = Chunk(make_request([1, 2, 3]), 0, 2)
    tree = Chunk(drafting([5, 6, 7, 8], [-1, -1, 0, 2]), 2, 4, 3)
    positions, parents = place_drafts([prefill, tree], int32(0, 2, 6), int32(0, 1, 2, 3, 4, 5))
    assert parents is not None
    assert parents.tolist() == [-1, 0, -1, 2, 2, 3]
    assert positions.tolist() == [0, 1, 2, 3, 3, 4]
    assert parents.dtype == positions.dtype == np.int32


def test_a_chunk_before_a_tree_reaches_its_root() -> None:
    """Two known tokens are computed along with the tree behind the last of them."""
    chunk = Chunk(drafting([5, 6], [-1, -1]), 1, 4, 2)
    positions, parents = place_drafts([chunk], int32(0, 4), int32(1, 2, 3, 4))
    assert parents is not None
    assert parents.tolist() == [-1, 0, 1, 1]
    assert positions.tolist() == [1, 2, 3, 3]


def test_the_deepest_path() -> None:
    assert deepest_path(None, 3) == 3
    assert deepest_path([-1, -1, 0, 2], 4) == 3
    assert deepest_path([-1, -1, 0, 2], 2) == 1
    assert deepest_path([-1], 0) == 0


def test_accepted_paths_move_up_behind_the_known_tokens() -> None:
    one, other = make_request(), make_request()
    for request, blocks in ((one, (4, 7)), (other, (2, 9))):
        request.tables.blocks[0].extend(blocks)
    accepted = [
        Accepted(one, 2, (1, 3)),  # tokens 3 and 5 go to 2 and 3
        Accepted(other, 1, (0, 2)),  # token 1 stays, 3 goes to 2
        Accepted(other, 1, (0, 1)),  # a chain already
        Accepted(other, 1, ()),
    ]
    ((group, sources, targets),) = compacted_slots(accepted, 1, 4)
    assert group == 0
    assert sources.tolist() == [4 * 4 + 3, 7 * 4 + 1, 2 * 4 + 3]
    assert targets.tolist() == [4 * 4 + 2, 4 * 4 + 3, 2 * 4 + 2]


def test_chains_move_nothing() -> None:
    assert list(compacted_slots([Accepted(make_request(), 2, (0, 1))], 1, 4)) == []
