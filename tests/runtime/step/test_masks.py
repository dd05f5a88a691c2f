from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from optc.runtime.requests.request import Request
from optc.runtime.sampling.sampler import Mask
from optc.runtime.step.masks import Constrained, fill_masks, prune_drafts
from tests.runtime.speculative.test_speculator import request
from tests.runtime.support.toy import toy_spec


class Marks:
    """Stands for a constraint of a tokenizer with 96 tokens: fills its rows with its number, and
    forbids drafts from 50 on."""

    mask_words = 3

    def __init__(self, number: int) -> None:
        self.number = number
        self.filled: list[tuple[list[int], Sequence[int] | None]] = []
        self.pruned: list[tuple[list[int], Sequence[int] | None]] = []

    def fill(self, masks: Mask, drafts: Sequence[int], parents: Sequence[int] | None) -> None:
        assert masks.shape == (1 + len(drafts), self.mask_words)
        masks[:] = self.number
        self.filled.append((list(drafts), parents))

    def prune(
        self, drafts: list[int], parents: Sequence[int] | None
    ) -> tuple[list[int], list[int] | None]:
        self.pruned.append((drafts, parents))
        kept = [draft for draft in drafts if draft < 50]
        return kept, None if parents is None else [-1] * len(kept)


def constrained(marks: Any, first: int, *drafts: int) -> Constrained:
    return Constrained(marks, first, drafts, None)


def test_without_constraints_there_are_no_masks() -> None:
    assert fill_masks([], 5, toy_spec()) is None


@pytest.mark.parametrize(("vocab", "words"), [(64, 2), (65, 3), (33, 2), (96, 3)])
def test_masks_have_the_words_of_the_models_tokens(vocab: int, words: int) -> None:
    masks = fill_masks([constrained(Marks(7), 0)], 1, toy_spec(vocab=vocab))
    assert masks is not None
    assert masks.tolist() == [[7] * words]
    assert masks.flags.c_contiguous


def test_each_request_fills_its_own_rows_and_others_allow_everything() -> None:
    first, second = Marks(1), Marks(2)
    masks = fill_masks(
        [constrained(first, 1, 30, 31), constrained(second, 5)], 7, toy_spec(vocab=64)
    )
    assert masks is not None
    everything = 0xFFFFFFFF
    assert masks[:, 0].tolist() == [everything, 1, 1, 1, everything, 2, everything]
    assert masks.dtype == np.uint32
    assert first.filled == [([30, 31], None)]


def drafted(number: int, drafts: list[int], parents: list[int] | None, marks: Any) -> Request:
    made = request(number)
    made.constraint = marks
    made.draft(drafts, parents)
    return made


def test_forbidden_drafts_are_taken_back() -> None:
    marks, trees, free = Marks(1), Marks(2), Marks(3)
    chain = drafted(0, [40, 60], None, marks)
    tree = drafted(1, [60, 41, 42], [-1, -1, 1], trees)
    others = [drafted(2, [], None, free), drafted(3, [60], None, None)]
    prune_drafts([chain, tree, *others])
    assert marks.pruned == [([40, 60], None)]
    assert trees.pruned == [([60, 41, 42], [-1, -1, 1])]
    assert free.pruned == []
    assert chain.path[chain.num_tokens :].tolist() == [40]
    assert tree.path[tree.num_tokens :].tolist() == [41, 42]
    assert tree.draft_parents == [-1, -1]
    assert others[1].num_drafted == 1
