"""Figures of a generator of texts beside that of its source: toys that write what they are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from optc.artifact.tasks.text_to_text import TEXT_TO_TEXT
from optc.proof.gates.text_to_text.measure import measure_text_to_text
from optc.runtime.text_to_text.conventions import TextConventions
from optc.runtime.text_to_text.generator import GeneratedText

END = 9


class Writes:
    """Tokens for each text, with an end unless they stand in ``cut``; keeps what it was asked."""

    conventions = TextConventions(start=0, ends=(END,))

    def __init__(self, said: Mapping[str, tuple[int, ...]], cut: Sequence[str] = ()) -> None:
        self.said, self.cut = said, cut
        self.asked: list[tuple[list[str], dict[str, Any]]] = []

    def generate(self, texts: Sequence[str], **how: Any) -> list[GeneratedText]:
        self.asked.append((list(texts), how))
        return [GeneratedText("", self.said[one], one not in self.cut) for one in texts]

    def likeliest(self, text: str, written: GeneratedText, **how: Any) -> list[int]:
        self.asked.append(([text], how))
        own = (*self.said[text], 0 if text in self.cut else END)
        return [*own, *[0] * len(written.tokens)][: len(written.tokens) + 1]


SAID = {"a": (1, 2, 3), "b": (4,)}


def figures(found: Writes, reference: Writes, **bounds: float | None) -> dict[str, Any]:
    results = measure_text_to_text(
        *(found, reference, found, ["a", "b"], bounds, "one", {"max_tokens": 7})  # type: ignore[arg-type]
    )
    assert [one.name for one in results] == list(TEXT_TO_TEXT.gates)
    assert {one.engine for one in results} == {"one"}
    return {one.name: one.value for one in results}


def test_the_same_texts_agree_and_are_written_as_asked() -> None:
    found, reference = Writes(SAID), Writes(SAID)
    expected = {"token_agreement": 1, "text_agreement": 1, "generation_speedup": None}
    assert figures(found, reference) == expected
    assert all(how == {"max_tokens": 7} for _, how in found.asked + reference.asked)
    assert [texts for texts, _ in found.asked] == [["a", "b"], ["a"], ["b"]]


@pytest.mark.parametrize(
    ("said", "cut", "tokens", "texts"),
    [
        ({"a": (1, 5, 3), "b": (4,)}, (), 5 / 6, 1 / 2),
        ({"a": (1, 5, 5), "b": (5,)}, (), 3 / 6, 0),
        (SAID, ("a",), 5 / 6, 1),
        (SAID, ("a", "b"), 4 / 6, 1),
    ],
)
def test_each_token_and_each_end_counts(
    said: Mapping[str, tuple[int, ...]], cut: Sequence[str], tokens: float, texts: float
) -> None:
    found = figures(Writes(said, cut), Writes(SAID))
    assert found["token_agreement"] == pytest.approx(tokens)
    assert found["text_agreement"] == texts


def test_a_text_of_the_reference_that_is_cut_off_has_no_end_to_agree_with() -> None:
    assert figures(Writes(SAID), Writes(SAID, ("a",)))["token_agreement"] == 1


def test_speed_is_measured_where_it_has_a_bound_with_four_texts_three_times() -> None:
    found, baseline = (Writes(dict.fromkeys("abcdef", (1,))) for _ in range(2))
    results = measure_text_to_text(
        *(found, found, baseline, list("abcdef")),  # type: ignore[arg-type]
        *({"generation_speedup": 1e-9}, "one", {"batch_size": 2}),
    )
    assert baseline.asked == [(list("abcd"), {"batch_size": 2})] * 3
    assert results[-1].passed
    assert results[-1].bound == 1e-9
