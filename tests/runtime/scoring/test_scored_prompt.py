from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.scoring.scored_prompt import ScoredPrompt, ScoredToken
from optc.runtime.scoring.token_logprobs import TokenLogprobs


def token(best: int, logprob: float = -1.0) -> ScoredToken:
    return ScoredToken(TokenLogprobs(best, -0.5, ((best, -0.5), (9, -2.0))), logprob, 2)


def test_rows_come_in_order_and_the_result_when_all_are_there() -> None:
    prompt = ScoredPrompt(np.array([5, 6, 7, 8], np.int32), 2, 2, 48)
    assert prompt.row == 1
    with pytest.raises(RuntimeError, match="row 0 was scored, row 1 comes next"):
        prompt.add(0, [token(7)])
    prompt.add(1, [token(7, -0.5)])
    assert (prompt.row, prompt.result()) == (2, None)
    prompt.add(2, [token(3, -4.0)])
    found = prompt.result()
    assert prompt.row is None
    assert found is not None
    assert (found.total, found.is_greedy, len(found)) == (-4.5, False, 4)
    assert found[:2] == (None, None)
    assert found[-1] == found[3]
    last = found[3]
    assert last is not None
    assert (last.token_id, last.logprob, last.rank) == (8, -4.0, 2)
    assert last.top == ((3, -0.5), (9, -2.0))
    assert "2 of 4 tokens, -4.5 together" in repr(found)


def test_no_more_alternatives_than_there_are_tokens() -> None:
    prompt = ScoredPrompt(np.array([0, 1], np.int32), 0, 100, 2)
    prompt.add(0, [ScoredToken(TokenLogprobs(1, -0.1, ((1, -0.1), (0, -2.3))), -0.1, 1)])
    found = prompt.result()
    assert found is not None
    assert found.is_greedy
    assert found[1] is not None
    assert found[1].to_json() == {
        "token_id": 1,
        "logprob": -0.1,
        "top": [{"token_id": 1, "logprob": -0.1}, {"token_id": 0, "logprob": -2.3}],
        "rank": 1,
    }
    assert found == found[:] or tuple(found) == found[:]


@pytest.mark.parametrize("first", [2, 3, 100])
def test_nothing_behind_the_end_is_scored(first: int) -> None:
    prompt = ScoredPrompt(np.array([0, 1], np.int32), first, 0, 48)
    assert prompt.row is None
    found = prompt.result()
    assert found is not None
    assert tuple(found) == (None, None)
