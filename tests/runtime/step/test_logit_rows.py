"""Rows of a step's logits: whose they are, and what comes of them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from optc.runtime.executable.executable import Float32
from optc.runtime.params import SamplingParams
from optc.runtime.requests.request import Request
from optc.runtime.sampling.sampler import Mask, Sampled
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.step.logit_rows import LogitRows, constrained, judge, last_rows, logit_rows_of
from optc.runtime.step.verifier import Verdict
from tests.runtime.support.requests import make_request
from tests.runtime.support.toy import ToyExecutable, toy_spec

GREEDY = SamplingParams(temperature=0)
V = 8


def drafting(*tokens: int, parents: list[int] | None = None, **options: Any) -> Request:
    request = make_request([1, 2, 3], GREEDY, **options)
    request.draft(tokens, parents)
    return request


def logits_of(*best: int) -> Float32:
    """[R, V] rows whose likeliest tokens are these."""
    return np.eye(V, dtype=np.float32)[list(best)]


def allowing(*rows: tuple[int, ...]) -> Mask:
    return np.array([[sum(1 << token for token in row)] for row in rows], np.uint32)


def test_only_requests_that_a_step_completes_have_logits() -> None:
    half, whole = make_request([1, 2, 3]), make_request([1, 2, 3])
    tree = drafting(4, 5, 6, parents=[-1, 0, -1])
    chain = drafting(4, 5)
    chunks = [
        Chunk(half, 0, 2),
        Chunk(whole, 0, 3),
        Chunk(tree, 2, 3, 2),  # of its three drafts there are rows for two
        Chunk(chain, 2, 3, 2),
        Chunk(tree, 2, 1, 0),
    ]
    assert logit_rows_of(chunks) == [
        LogitRows(whole, 0, 0, None),
        LogitRows(tree, 1, 2, [-1, 0]),
        LogitRows(chain, 4, 2, None),
        LogitRows(tree, 7, 0, None),
    ]


def test_the_rows_of_a_draw_follow_its_drafts() -> None:
    request = drafting(4, 5, seed=3, index=2)
    draw = LogitRows(request, 6, 2)
    assert list(draw.at) == [6, 7, 8]
    assert draw.drafts.tolist() == [4, 5]
    rows = draw.rows(None)
    assert [row.tokens.tolist() for row in rows] == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]]
    assert {(row.seed, row.completion, row.num_prompt, row.mask) for row in rows} == {
        (3, 2, 3, None)
    }
    (plain,) = LogitRows(request, 0, 0).rows(None)
    assert plain.tokens.tolist() == [1, 2, 3], "drafts without rows are not looked at"
    tree = LogitRows(drafting(4, 5, parents=[-1, -1]), 0, 2, [-1, -1]).rows(None)
    assert tree[2].tokens.tolist() == [1, 2, 3, 5]


@pytest.mark.parametrize("drafted", [0, 1])
def test_masks_are_for_requests_with_a_constraint(drafted: int) -> None:
    masks = allowing((0,), (1,), (2,), (3,))
    free = LogitRows(drafting(4), 1, drafted)
    assert {row.mask for row in free.rows(masks)} == {None}
    bound = LogitRows(drafting(4, constraint=object()), 1, drafted)
    got = [cast("Mask", row.mask).tolist() for row in bound.rows(masks)]
    assert got == masks[1 : 2 + drafted].tolist()
    assert bound.rows(None)[0].mask is None


def test_everybody_gets_what_his_own_rows_say() -> None:
    executable = ToyExecutable(toy_spec(vocab=V))
    plain = LogitRows(make_request([1, 2, 3], GREEDY), 0, 0)
    chain = LogitRows(drafting(4, 5), 1, 2)
    tree = LogitRows(drafting(4, 6, parents=[-1, -1]), 4, 2, [-1, -1])
    logits = logits_of(7, 4, 6, 0, 6, 1, 2)
    first, second, third = judge(executable, logits, [plain, chain, tree], None)
    assert (first.verdict, first.best) == (Verdict([Sampled(7, None)]), [7])
    assert second.verdict == Verdict([Sampled(4, None), Sampled(6, None)], (0,))
    assert second.best == [4, 6, 0]
    assert third.verdict == Verdict([Sampled(6, None), Sampled(2, None)], (1,))
    masked = judge(
        executable, logits, [LogitRows(drafting(constraint=object()), 3, 0)], allowing(*[(5,)] * 7)
    )
    assert (masked[0].verdict.drawn, masked[0].best) == ([Sampled(5, None)], [0])


def test_constraints_of_a_step() -> None:
    constraint = object()
    draws = [
        LogitRows(drafting(4), 0, 1),
        LogitRows(drafting(5, constraint=constraint), 2, 1, [-1]),
    ]
    assert constrained(draws) == [(constraint, 2, [5], [-1])]


def test_the_row_of_the_last_token() -> None:
    one, two = drafting(4, 5, request_id=3), make_request(request_id=9)
    draws = [LogitRows(one, 0, 2), LogitRows(two, 3, 0), LogitRows(one, 4, 2)]
    rejected, accepted = Verdict([], ()), Verdict([], (0, 2))
    assert last_rows(draws[:2], [rejected, rejected]) == {3: 0, 9: 3}
    assert last_rows(draws[1:], [rejected, accepted]) == {9: 3, 3: 4 + 3}
