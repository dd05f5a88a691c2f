from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optc.runtime.requests.ruled import Float32, Ruled
from optc.runtime.sampling.sampler import unpacked
from optc.runtime.step.logit_rows import LogitRows
from optc.runtime.step.ruled import with_rules
from tests.runtime.speculative.test_speculator import request

VOCABULARY = 70


class Last:
    """Nothing but 66 behind an odd token; behind an even one not that token, and not 2."""

    def after(self, tokens: Sequence[int]) -> Ruled:
        return Ruled(66) if tokens[-1] % 2 else Ruled(None, (tokens[-1], 2))


def ruled(drafts: list[int], parents: list[int] | None = None) -> LogitRows:
    """Of a request whose last token is 4."""
    one = request(0)
    one.append(4)
    one.rules = Last()
    one.draft(drafts, parents)
    return LogitRows(one, 1, len(drafts), parents)


def logits(rows: int) -> Float32:
    return np.zeros((rows, VOCABULARY), np.float32)


def allowed(masks: np.ndarray | None, row: int) -> list[int]:
    assert masks is not None
    return np.flatnonzero(unpacked(masks[row], VOCABULARY)).tolist()


def without(*tokens: int) -> list[int]:
    return [token for token in range(VOCABULARY) if token not in tokens]


def test_each_row_follows_its_own_path() -> None:
    masks = with_rules(None, [ruled([7, 68])], logits(5))
    assert [allowed(masks, row) for row in range(5)] == [
        *(without(), without(2, 4), [66], without(2, 68), without()),
    ]


def test_a_tree_of_drafts() -> None:
    masks = with_rules(None, [ruled([7, 68, 6], [-1, -1, 1])], logits(5))
    assert [allowed(masks, row) for row in range(1, 5)] == [
        *(without(2, 4), [66], without(2, 68), without(2, 6)),
    ]


def test_beside_a_structure() -> None:
    """A token that alone may follow, and is forbidden, is not forced."""
    masks = np.zeros((4, 3), np.uint32)
    masks[1, 0], masks[2, 0] = 0b10111, 0b1001
    found = with_rules(masks, [ruled([7])], logits(4))
    assert [allowed(found, row) for row in (1, 2)] == [[0, 1], [0, 3]]


def test_requests_without_rules_have_no_masks() -> None:
    row = ruled([])
    row.request.rules = None
    assert with_rules(None, [row], logits(2)) is None


class Weighed:
    """Tokens from 60 on where they outweigh those before, but for 0 to 9 and 65 to the end."""

    def after(self, tokens: Sequence[int]) -> Ruled:
        return Ruled(spans=((0, 10), (65, 1 << 62)), outweigh=60)


def test_tokens_that_outweigh_others_together() -> None:
    one = ruled([7])
    one.request.rules = Weighed()
    values = logits(3)
    values[1, 20] = 1.5  # five tokens of 0 weigh log 5 = 1.609
    values[2, 20] = 1.7
    values[1, 3] = values[1, 69] = 9  # forbidden tokens weigh nothing
    masks = with_rules(None, [one], values)
    assert allowed(masks, 1) == list(range(60, 65))
    assert allowed(masks, 2) == list(range(10, 65))


def test_forbidden_tokens_outweigh_nothing() -> None:
    one = ruled([])
    one.request.rules = Weighed()
    masks = np.full((2, 3), 0xFFFFFFFF, np.uint32)
    masks[1, 1:] = 0
    assert allowed(with_rules(masks, [one], logits(2)), 1) == list(range(10, 32))
