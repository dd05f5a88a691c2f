from __future__ import annotations

from typing import cast

import pytest

from optc.runtime.scheduling.chunks import Chunk, Rows, Schedulable, pending
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
    rows = Rows(10)
    rows.give(3, 4)
    rows.give(5, 1)
    assert (rows.left, rows.of) == (5, {3: 4, 5: 1})
    rows.take_back(3)
    assert (rows.left, rows.of) == (9, {5: 1})
    rows.take_back(3)
    assert rows.left == 9, "who has none gives none back"


def test_pending_rows_are_what_is_known_but_not_computed() -> None:
    assert pending(cast(Schedulable, job(10, 4))) == 6
    assert pending(cast(Schedulable, job(10, 10))) == 0
    assert pending(cast(Schedulable, job(10, 4, idle=True))) == 0


def test_rows_are_no_drafts_unless_it_is_said() -> None:
    assert Chunk(job(4, 0), 0, 4).drafted == 0
