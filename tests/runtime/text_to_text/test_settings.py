"""What a request may ask of a model of texts, and what it may not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from optc.errors import RequestError
from optc.runtime.text_to_text.conventions import TextConventions
from optc.runtime.text_to_text.params import TextToTextParams
from optc.runtime.text_to_text.rules import Rules


@pytest.mark.parametrize(
    ("field", "wrong", "said"),
    [("max_tokens", 0, "0 tokens of a text"), ("batch_size", 0, "0 texts at once")],
)
def test_counts_are_at_least_one(field: str, wrong: int, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        TextToTextParams(**{field: wrong})  # type: ignore[arg-type]
    assert caught.value.where == field
    TextToTextParams(**{field: 1})  # type: ignore[arg-type]


def test_what_steps_have_is_told_from_what_all_have() -> None:
    assert TextToTextParams(max_tokens=3, batch_size=1, truncate=True).of_steps == []
    given: dict[str, Any] = {"beam_width": 2, "length_penalty": 0.5}
    assert TextToTextParams(**given).of_steps == list(given)
    for structure in ({"regex": "a"}, {"choice": ["a"]}, {"grammar": "root ::= x"}):
        assert TextToTextParams(**structure).of_steps == list(structure)


def test_parameters_of_the_engine_s_requests() -> None:
    params = TextToTextParams().params(7, 1.5)
    assert (params.max_tokens, params.temperature, params.repetition_penalty) == (7, 0, 1.5)
    beams = TextToTextParams(beam_width=3, length_penalty=0.5).params(7, 1.0)
    assert (beams.beam_width, beams.length_penalty) == (3, 0.5)
    structured = TextToTextParams(choice=["a", "b"]).params(1, 1.0)
    assert list(structured.choice or ()) == ["a", "b"]


@pytest.mark.parametrize(("count", "hint"), [(8, "c0, c1, .*, c7"), (9, "c0, .*, c7 …")])
def test_a_language_that_is_not_known(count: int, hint: str) -> None:
    known = TextConventions(start=0, languages={f"c{one}": 10 + one for one in range(count)})
    assert known.language("c3", "x") == 13
    with pytest.raises(RequestError, match="the model does not know 'other'") as caught:
        known.language("other", "source_language")
    assert caught.value.where == "source_language"
    assert caught.value.hint is not None
    assert re.fullmatch(f"one of {hint}", caught.value.hint)


def test_a_model_of_no_languages() -> None:
    with pytest.raises(RequestError, match="the model's tokens name no languages"):
        TextConventions(start=0).prompt("de")
    assert TextConventions(start=4, first=5).prompt(None) == (4, 5)


def test_a_language_is_the_start_where_that_is_one() -> None:
    languages = {"de": 10, "fr": 11}
    assert TextConventions(start=10, languages=languages, first=3).prompt("fr") == (11, 3)
    assert TextConventions(start=2, languages=languages, first=3).prompt("fr") == (2, 11)


@pytest.mark.parametrize(
    ("known", "some"),
    [
        ({}, False),
        ({"repetition_penalty": 2.0}, False),
        *(({name: (3,)}, True) for name in ("suppressed", "suppressed_first")),
        ({"no_repeat": 2}, True),
        ({"last": 0}, True),
        *(({"least_length": count}, count > 1) for count in (0, 1, 2)),
        *(({"least_tokens": count}, count > 0) for count in (0, 1)),
        ({"least_tokens": 1, "ends": ()}, False),
    ],
)
def test_rules_that_forbid_or_force_something(known: dict[str, Any], some: bool) -> None:
    given = {"start": 0, "ends": (1,), **known}
    assert Rules(TextConventions(**given), 0, None, 5).any is some
