"""Hidden states are computed in growing groups, and only as far as they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from optc.proof.reference import blockwise
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.running.window_states import WindowStates
from tests.support.dense_models import V, dense_model

TOKENS = np.random.default_rng(1).integers(0, V, (11, 6), np.int32)


def states(groups: list[int], tokens: np.ndarray = TOKENS, growth: int = 2) -> WindowStates:
    """Of tokens whose state is their number; notes how many windows run at once."""

    def run(some: np.ndarray) -> np.ndarray:
        groups.append(len(some))
        return some.reshape(-1, 1).astype(np.float32)

    return WindowStates(tokens, np.empty((*tokens.shape, 1), np.float32), run, 2, growth)


@pytest.mark.parametrize(("growth", "expected"), [(2, [2, 4, 5]), (4, [2, 8, 1])])
def test_groups_grow_and_end_with_the_windows(growth: int, expected: list[int]) -> None:
    groups: list[int] = []
    one = states(groups, growth=growth)
    for index in range(len(TOKENS)):
        np.testing.assert_array_equal(one.window(index)[:, 0], TOKENS[index])
    assert groups == expected


def test_windows_that_nobody_asks_for_are_not_computed() -> None:
    groups: list[int] = []
    one = states(groups)
    one.window(1)
    one.window(0)
    assert groups == [2]
    np.testing.assert_array_equal(one.all()[:, 0], TOKENS.ravel())
    assert groups == [2, 9]


def test_what_another_run_knows_is_taken_up_to_the_first_other_window() -> None:
    before, groups = states([]), list[int]()
    before.window(5)
    other = TOKENS[[2, 0, 1, *range(3, len(TOKENS))]]
    other[3] += 1
    one = states(groups, other)
    one.take(before)
    np.testing.assert_array_equal(one.all()[:, 0], other.ravel())
    assert groups == [8]
    shorter = states(groups, TOKENS[:, :5])
    shorter.take(before)
    shorter.all()
    assert groups == [8, 11]


@pytest.mark.parametrize("kept_bytes", [0, 1 << 30])
def test_a_reference_gives_the_same_bits_in_groups(
    kept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockwise, "BLOCK_ROWS", 12)
    model = dense_model(2)
    expected = BlockwiseReference(model, 1).run(TOKENS)
    reference = BlockwiseReference(model, 1, kept_bytes)
    some = reference.window_states(TOKENS[:3])
    some.window(2)
    every = reference.window_states(TOKENS)
    found = np.concatenate([every.window(index) for index in range(len(TOKENS))])
    np.testing.assert_array_equal(found, expected)
    assert reference.window_states(TOKENS) is every
    # blocks that stay open take chunks of other sizes, and do not see what observers rewrite
    np.testing.assert_array_equal(
        reference.run(TOKENS[:1, :4]), BlockwiseReference(model, 1).run(TOKENS[:1, :4])
    )
    reference.let_go()
    np.testing.assert_array_equal(reference.run(TOKENS), expected)
