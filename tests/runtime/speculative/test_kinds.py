from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.runtime.speculative.kinds import KINDS, MODELS, parse_kinds


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("off", ()),
        ("ngram", ("ngram",)),
        ("medusa+draft+lookahead+ngram", ("ngram", "lookahead", "draft", "medusa")),
        ("self+ngram", ("ngram", "self")),
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
        "(off, or one or more of ngram, lookahead, draft, self, medusa, joined by +)"
    )


@pytest.mark.parametrize("text", ["draft+self", "self+ngram+draft"])
def test_two_models_cannot_both_draft(text: str) -> None:
    assert set(MODELS) <= set(text.split("+"))
    with pytest.raises(InputError) as caught:
        parse_kinds(text)
    assert str(caught.value) == "speculate: two models cannot both draft (draft or self)"
