"""What is copied in KV pools after a step: forks' partial blocks, accepted paths of trees."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from optc.runtime.executable.executable import Executable, Int32
from optc.runtime.kv.kv_blocks import BlockCopy, KVBlocks
from optc.runtime.params import SamplingParams
from optc.runtime.requests.request import Request
from optc.runtime.step.kv_copies import move_kv
from optc.runtime.step.logit_rows import LogitRows
from optc.runtime.step.verifier import Verdict
from tests.runtime.support.toy import toy_spec
from tests.runtime.support.traffic import add, make_core


class Copies:
    """Notes what it is told to copy."""

    def __init__(self) -> None:
        self.made: list[tuple[int, list[int], list[int]]] = []

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        assert src_slots.dtype == dst_slots.dtype == np.int32
        self.made.append((group, src_slots.tolist(), dst_slots.tolist()))


def moved(
    blocks: KVBlocks, copies: list[BlockCopy], draws: list[LogitRows], verdicts: list[Verdict]
) -> list[tuple[int, list[int], list[int]]]:
    executable = Copies()
    move_kv(cast(Executable, executable), blocks, copies, draws, verdicts)
    return executable.made


@pytest.fixture
def decoding() -> tuple[KVBlocks, Request]:
    """Three known tokens, the first row of drafts in the last place of the first block of four."""
    core, _ = make_core(toy_spec((0, 8)), prefix_cache=False)
    request = add(core, [1, 2, 3], SamplingParams(max_tokens=9))
    assert core.scheduler.blocks.grow(request.tables, 8)
    return core.scheduler.blocks, request


def test_forks_copy_the_beginnings_of_their_last_blocks_group_by_group() -> None:
    blocks = KVBlocks((0, 8), (9, 9), 4)
    copies = [BlockCopy(1, 2, 5, 1), BlockCopy(0, 3, 4, 2), BlockCopy(1, 0, 1, 3)]
    assert moved(blocks, copies, [], []) == [
        (0, [12, 13], [16, 17]),
        (1, [8, 0, 1, 2], [20, 4, 5, 6]),
    ]


def test_an_accepted_path_moves_up_in_every_group(decoding: tuple[KVBlocks, Request]) -> None:
    blocks, request = decoding
    draw = LogitRows(request, 0, 4, parents=(-1, -1, 1, 1))
    first, second = (table.tolist() for table in request.tables.blocks)
    made = moved(blocks, [], [draw], [Verdict([5, 6, 7], (1, 3))])
    # Drafts stand at 3, 4, 5, 6; those at 4 and 6 go to 3 and 4.
    assert made == [
        (group, [4 * table[1], 4 * table[1] + 2], [4 * table[0] + 3, 4 * table[1]])
        for group, table in enumerate((first, second))
    ]


@pytest.mark.parametrize(("parents", "path"), [((-1, 0, 0), (0, 1)), (None, (0, 1)), ((-1,), ())])
def test_a_path_that_lies_where_it_should_stays(
    decoding: tuple[KVBlocks, Request], parents: tuple[int, ...] | None, path: tuple[int, ...]
) -> None:
    blocks, request = decoding
    assert moved(blocks, [], [LogitRows(request, 0, 3, parents)], [Verdict([5], path)]) == []
