from __future__ import annotations

from typing import cast

import pytest

from optc.runtime.scheduling.chunks import Chunk, Rows, Schedulable, logits_wanted, pending
from tests.runtime.support.jobs import Job, make_world


def job(known: int, computed: int, *, idle: bool = False) -> Job:
    world = make_world(longest=64)
    made = world.add(known, 1)
    made.num_computed, made.idle = computed, idle
    return made


@pytest.mark.parametrize(
    ("start", "rows", "drafted", "completes"),
    [
        (0, 9, 0, False),
        (0, 10, 0, True),
        (9, 1, 0, True),
        (9, 4, 3, True),
        (7, 4, 1, True),
        (6, 4, 1, False),
    ],
)
def test_a_chunk_completes_with_the_last_known_token(
    start: int, rows: int, drafted: int, completes: bool
) -> None:
    assert Chunk(job(10, start), start, rows, drafted).completes == completes


def test_rows_that_are_taken_back_can_be_given_again() -> None:
    rows = Rows(10, 3)
    long, last = scoring(9, 2, 3), scoring(6, 5, None)
    rows.give(long, 4)  # rows 2 to 5, of which 3 to 5 score
    assert (rows.left, rows.logits, rows.of) == (6, 0, {long.id: 4})
    rows.take_back(long.id)
    assert (rows.left, rows.logits, rows.of) == (10, 3, {})
    rows.take_back(long.id)
    assert (rows.left, rows.logits) == (10, 3), "who has none gives none back"
    rows.give(last, 1)
    assert (rows.left, rows.logits) == (9, 2)


def scoring(known: int, computed: int, score_row: int | None) -> Job:
    made = job(known, computed)
    made.id, made.score_row = known, score_row
    return made


@pytest.mark.parametrize("known", range(1, 7))
@pytest.mark.parametrize("left", range(6))
@pytest.mark.parametrize("logits", range(4))
def test_a_request_gets_as_many_rows_as_there_are_logits_for(
    known: int, left: int, logits: int
) -> None:
    """As counted row by row: which rows' logits are wanted."""
    for computed in range(known):
        for score_row in (None, *range(computed, known)):
            made = scoring(known, computed, score_row)
            first = known - 1 if score_row is None else score_row
            wanted = [row >= first for row in range(computed, known)]
            fitting = [n for n in range(len(wanted) + 1) if n <= left and sum(wanted[:n]) <= logits]
            assert Rows(left, logits).fit(cast(Schedulable, made)) == max(fitting)
            for count in range(len(wanted) + 1):
                assert logits_wanted(cast(Schedulable, made), count) == sum(wanted[:count])


def test_pending_rows_are_what_is_known_but_not_computed() -> None:
    assert pending(cast(Schedulable, job(10, 4))) == 6
    assert pending(cast(Schedulable, job(10, 10))) == 0
    assert pending(cast(Schedulable, job(10, 4, idle=True))) == 0


def test_rows_are_no_drafts_unless_it_is_said() -> None:
    assert Chunk(job(4, 0), 0, 4).drafted == 0
