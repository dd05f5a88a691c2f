"""``optc run --speculate``: the same text, and what came of the drafts."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Optc


def test_speculation_changes_nothing_but_the_figures(optc: Optc, artifact: Path) -> None:
    arguments = ("run", artifact, "--prompt", "abababababab", "--max-tokens", "30", "--ignore-eos")
    plain = optc(*arguments, "--json").json
    drafting = ("--speculate", "ngram", "--num-speculative-tokens", "3")
    speculated = optc(*arguments, "--json", *drafting).json
    assert speculated["token_ids"] == plain["token_ids"]
    assert set(speculated) - set(plain) == {"drafted_tokens", "accepted_tokens"}
    assert 0 <= speculated["accepted_tokens"] <= speculated["drafted_tokens"]
    assert speculated["drafted_tokens"] > 0
    outcome = optc(*arguments, *drafting)
    assert outcome.out == plain["text"] + "\n"
    assert "drafts accepted; ended by length" in outcome.err


def test_an_unknown_kind_of_speculation_is_a_usage_error(optc: Optc, artifact: Path) -> None:
    outcome = optc("run", artifact, "--prompt", "ab", "--speculate", "magic")
    assert outcome.code == 2
    assert "speculation by 'magic' is not known" in outcome.err
    assert "off, or one or more of ngram, lookahead, draft, self, eagle, medusa" in outcome.err
