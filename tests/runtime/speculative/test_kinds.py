from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.runtime.speculative.drafting import Drafting
from optc.runtime.speculative.kinds import KINDS, MODELS, parse_kinds
from optc.runtime.speculative.planning.break_even import BreakEven
from optc.runtime.speculative.planning.controller import Draftable
from optc.runtime.speculative.planning.plan_drafts import Costs
from optc.runtime.speculative.planning.row_costs import RowCosts


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("off", ()),
        ("ngram", ("ngram",)),
        ("medusa+draft+lookahead+ngram", ("ngram", "lookahead", "draft", "medusa")),
        ("self+ngram", ("ngram", "self")),
        ("medusa+eagle", ("eagle", "medusa")),
        ("ngram+ngram", ("ngram",)),
    ],
)
def test_the_surest_are_asked_first(text: str, kinds: tuple[str, ...]) -> None:
    assert parse_kinds(text) == kinds


@pytest.mark.parametrize("text", ["", "ngrams", "ngram+", "ngram,draft", "off+ngram", "ngram+off"])
def test_unknown_kinds_are_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_kinds(text)
    wrong = next(kind for kind in text.split("+") if kind not in KINDS)
    assert str(caught.value) == (
        f"speculate: speculation by {wrong!r} is not known "
        "(off, or one or more of ngram, lookahead, draft, self, eagle, medusa, joined by +)"
    )


@pytest.mark.parametrize("text", ["draft+self", "self+ngram+eagle", "draft+eagle"])
def test_two_models_cannot_both_draft(text: str) -> None:
    assert len(set(MODELS) & set(text.split("+"))) == 2
    with pytest.raises(InputError) as caught:
        parse_kinds(text)
    assert (
        str(caught.value) == "speculate: two models cannot both draft (one of draft, self, eagle)"
    )


def test_at_most_sixteen_drafts_of_a_request_if_nothing_is_said() -> None:
    assert Drafting().limit == 16
    controller = BreakEven(Costs(RowCosts((1, 101), (1.0, 1.001))))
    for _ in range(9):
        controller.learn(1, 40, 40)
    rates = controller._planner.plan([Draftable(1, 99)], 1, controller._costs, 9.0)
    assert rates.counts == [16]
