"""Searches of an engine: who belongs to which, which rows their beams get, when they are gone."""

from __future__ import annotations

from typing import Any

import numpy as np

from optc.runtime.beams.searches import BeamSearches
from optc.runtime.executable.executable import Float32
from optc.runtime.kv.kv_blocks import BlockCopy
from optc.runtime.params import SamplingParams
from optc.runtime.requests.request import Request
from optc.runtime.step.logit_rows import LogitRows
from tests.runtime.beams.test_group import Scheduler, logits
from tests.runtime.support.requests import make_request

SEARCH = SamplingParams(beam_width=2)


def _members(searches: BeamSearches, leader: int, count: int, max_tokens: int) -> list[Request]:
    made = [
        make_request(
            [1, 2],
            SamplingParams(beam_width=count),
            request_id=leader + index,
            leader_id=leader,
            index=index,
        )
        for index in range(count)
    ]
    assert [searches.join(member, max_tokens) for member in made] == [True] + [False] * (count - 1)
    return made


def test_requests_of_one_leader_share_a_search() -> None:
    searches = BeamSearches(frozenset())
    first, second = _members(searches, 10, 2, 4), _members(searches, 20, 2, 4)
    assert searches.group_of(first[1]).members == first
    assert searches.group_of(second[0]).members == second


def test_a_search_is_forgotten_with_its_last_request() -> None:
    searches = BeamSearches(frozenset())
    members = _members(searches, 10, 2, 4)
    members[0].finish_reason = "length"
    searches.leave(members[0])
    assert len(searches) == 1
    members[1].finish_reason = "cancelled"
    searches.leave(members[1])
    assert len(searches) == 0


def test_each_beam_gets_its_row_of_a_steps_logits() -> None:
    searches = BeamSearches(frozenset())
    first, second = _members(searches, 10, 2, 4), _members(searches, 20, 1, 1)
    plain = make_request([1], request_id=3)
    step: Float32 = np.array([logits(t3=1.0), logits(t1=0.6, t2=0.4), logits(t7=1.0)])
    draws = [LogitRows(plain, 0, 0), LogitRows(first[0], 1, 0), LogitRows(second[0], 2, 0)]
    scheduler: Any = Scheduler()
    found = searches.advance(draws, step, scheduler, 1.0)
    assert found.copies == [BlockCopy(0, 10, 11, 1)]
    assert found.ended == second
    assert [member.output.tolist() for member in first] == [[1], [2]]
    assert plain.num_output == 0
    assert not plain.idle
