from __future__ import annotations

from optc.runtime.speculative.proposer import DraftOutcome, Drafts


def test_as_many_drafts_are_accepted_as_the_path_is_long() -> None:
    assert DraftOutcome(5, (0, 3), [1] * 6).accepted == 2
    assert DraftOutcome(5, (), [1] * 6).accepted == 0


def test_drafts_are_a_chain_unless_parents_are_given() -> None:
    assert Drafts([1, 2]).parents is None
