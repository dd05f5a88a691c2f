"""Beam search by hand: candidates in, beams and hypotheses out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optc.runtime.beams.search import (
    BeamSearch,
    Branch,
    Candidate,
    EarlyStopping,
    Hypothesis,
    likeliest,
)

END, OTHER_END = 9, 8


def search(width: int = 2, **options: Any) -> BeamSearch:
    given: dict[str, Any] = {
        "ends": frozenset({END}),
        "max_tokens": 10,
        "length_penalty": 1.0,
        "early_stopping": False,
    }
    return BeamSearch(width, **given | options)


def candidates(*pairs: tuple[float, int]) -> list[Candidate]:
    return [Candidate(logprob, token) for logprob, token in pairs]


@pytest.mark.parametrize(
    ("width", "ends", "wanted"),
    [(3, frozenset(), 6), (3, frozenset({END}), 6), (3, frozenset({END, OTHER_END}), 9)],
)
def test_so_many_candidates_that_ends_leave_enough(
    width: int, ends: frozenset[int], wanted: int
) -> None:
    assert search(width, ends=ends).wanted == wanted


def test_the_best_candidates_of_all_beams_go_on() -> None:
    found = search(2)
    first = found.advance([candidates((-1.0, 4), (-0.5, 3), (-3.0, 5), (-9.0, 6))], [()])
    assert first == [Branch(0, 3, -0.5), Branch(0, 4, -1.0)]
    assert found.logprobs == [-0.5, -1.0]
    second = found.advance(
        [candidates((-2.0, 1), (-2.5, 2)), candidates((-0.25, 7), (-1.0, 5))], [(3,), (4,)]
    )
    assert second == [Branch(1, 7, -1.25), Branch(1, 5, -2.0)]
    assert not found.done


def test_of_equals_the_first_beam_and_the_lowest_token_go_on() -> None:
    found = search(2)
    found.advance([candidates((-1.0, 4), (-1.0, 3))], [()])
    branches = found.advance(
        [candidates((-1.0, 6), (-1.0, 5)), candidates((-1.0, 2))], [(3,), (4,)]
    )
    assert branches == [Branch(0, 5, -2.0), Branch(0, 6, -2.0)]


def test_an_end_among_the_first_is_a_hypothesis_and_others_are_dropped() -> None:
    found = search(2, ends=frozenset({END, OTHER_END}))
    branches = found.advance(
        [candidates((-0.5, END), (-1.0, 3), (-1.5, OTHER_END), (-2.0, 4), (-2.5, 5))], [()]
    )
    assert found.hypotheses == [Hypothesis(-0.5, -0.5, (END,), True)], "the third is not looked at"
    assert branches == [Branch(0, 3, -1.0), Branch(0, 4, -2.0)]
    assert not found.done, "one hypothesis is not two"


def test_candidates_beyond_those_wanted_are_not_looked_at() -> None:
    found = search(1)
    branches = found.advance([candidates((-0.5, END), (-0.6, END), (-1.0, 3))], [()])
    assert branches == []
    assert found.done


@pytest.mark.parametrize(("penalty", "score"), [(0.0, -6.0), (1.0, -2.0), (2.0, -6 / 9)])
def test_scores_are_divided_by_a_power_of_the_length(penalty: float, score: float) -> None:
    found = search(1, length_penalty=penalty)
    found.logprobs = [-5.0]
    found.advance([candidates((-1.0, END), (-4.0, 2))], [(1, 2)])
    assert found.hypotheses == [Hypothesis(pytest.approx(score), -6.0, (1, 2, END), True)]


def test_at_the_last_token_the_best_are_hypotheses_whatever_they_are() -> None:
    found = search(2, max_tokens=2)
    found.advance([candidates((-0.5, 3), (-1.0, 4))], [()])
    assert not found.done
    found.advance(
        [candidates((-0.5, 3), (-5.0, 4)), candidates((-1.0, END), (-6.0, 5))], [(3,), (4,)]
    )
    assert found.done
    assert found.hypotheses == [
        Hypothesis(-0.5, -1.0, (3, 3), False),
        Hypothesis(-1.0, -2.0, (4, END), True),
    ]


def test_only_the_best_hypotheses_are_kept_and_the_first_of_equals() -> None:
    found = search(1, length_penalty=0.0, early_stopping="never")
    found.advance([candidates((-1.0, END), (-1.5, 3))], [()])
    assert found.done, "no beam can be better without a penalty"
    found.logprobs = [-0.5]
    found.advance([candidates((-0.5, END), (-9.0, 3))], [(3,)])
    assert found.hypotheses == [Hypothesis(-1.0, -1.0, (END,), True)]
    found.logprobs = [-0.5]
    found.advance([candidates((-0.25, END), (-9.0, 3))], [(3,)])
    assert found.hypotheses == [Hypothesis(-0.75, -0.75, (3, END), True)]


def after_one_end(
    early_stopping: EarlyStopping, penalty: float, beam: float, length: int = 1
) -> BeamSearch:
    """A search for one text that found one of score -1 at that length, with a beam left."""
    found = search(1, early_stopping=early_stopping, length_penalty=penalty, max_tokens=8)
    found.logprobs = [0.0]
    end = -1.0 * length**penalty
    found.advance([candidates((end, END), (beam, 2))], [(1,) * (length - 1)])
    return found


@pytest.mark.parametrize(
    ("early_stopping", "penalty", "beam", "done"),
    [
        (True, 1.0, -2.0001, True),
        (False, 1.0, -2.5, True),
        (False, 1.0, -2.0001, True),
        ("never", 1.0, -7.5, False),  # may have -7.5 / 8 in the end
        ("never", 1.0, -8.0, True),  # would be as good, not better
        ("never", 1.0, -8.5, True),
        ("never", 0.0, -2.0, True),
        ("never", -1.0, -3.0, True),  # a longer text is only worse
    ],
)
def test_when_to_stop(
    early_stopping: EarlyStopping, penalty: float, beam: float, done: bool
) -> None:
    assert after_one_end(early_stopping, penalty, beam, length=2).done == done


def test_a_beam_that_may_win_goes_on() -> None:
    found = search(1)
    found.hypotheses = [Hypothesis(-3.0, -3.0, (END,), True)]
    found.logprobs = [-1.0]
    assert found.advance([candidates((-1.0, 2), (-4.0, 3))], [(1,)]) == [Branch(0, 2, -2.0)]
    assert not found.done, "-1 a token is better than -3"


def test_a_negative_penalty_makes_longer_texts_no_better() -> None:
    found = search(1, early_stopping="never", length_penalty=-0.5)
    found.hypotheses = [Hypothesis(-3.0, -3.0, (END,), True)]
    found.logprobs = [-1.0]
    found.advance([candidates((-0.5, 2), (-4.0, 3))], [(1,)])
    assert not found.done, "-2.1 now is better than -3, -4.7 at ten tokens is not"


def test_stopping_early_keeps_the_first_hypotheses() -> None:
    found = search(1, early_stopping=True)
    found.hypotheses = [Hypothesis(-3.0, -3.0, (END,), True)]
    found.advance([candidates((-0.5, END), (-1.0, 2))], [(1,)])
    assert found.hypotheses == [Hypothesis(-3.0, -3.0, (END,), True)]
    assert found.done
    found = search(1, early_stopping=False)
    found.hypotheses = [Hypothesis(-3.0, -3.0, (END,), True)]
    found.advance([candidates((-0.5, END), (-1.0, 2))], [(1,)])
    assert found.hypotheses[0].score == -0.25


@pytest.mark.parametrize("count", [1, 2, 4, 5, 9])
def test_the_likeliest_tokens_have_their_log_probabilities(count: int) -> None:
    logits = np.array([0.5, 3.0, -1.0, 3.0, 2.0], np.float32)
    found = likeliest(logits, count)
    assert [candidate.token for candidate in found] == [1, 3, 4, 0, 2][:count]
    exact = logits.astype(np.float64)
    wanted = exact - np.log(np.exp(exact).sum())
    assert [each.logprob for each in found] == pytest.approx([wanted[e.token] for e in found])


def test_the_likeliest_of_many() -> None:
    logits = np.random.default_rng(0).permutation(300).astype(np.float32)
    for count in (1, 7, 150, 299):
        found = [candidate.token for candidate in likeliest(logits, count)]
        assert found == np.argsort(-logits)[:count].tolist()


def test_of_equally_likely_tokens_the_lowest_ids_are_taken() -> None:
    found = likeliest(np.array([1.0, 2.0, 1.0, 1.0], np.float32), 2)
    assert [candidate.token for candidate in found] == [1, 0]


def test_large_logits_do_not_overflow_and_a_nan_gives_nothing() -> None:
    assert likeliest(np.array([5000.0, 5000.0], np.float32), 1)[0].logprob == pytest.approx(
        -np.log(2)
    )
    assert likeliest(np.array([1.0, np.nan], np.float32), 1) == []


@pytest.mark.parametrize("count", [0, 1, 4])
def test_where_nothing_is_allowed_nothing_is_likeliest(count: int) -> None:
    logits = np.zeros(5, np.float32)
    assert likeliest(logits, count, np.zeros(5, np.bool_)) == []
    assert len(likeliest(logits, count, None)) == count
