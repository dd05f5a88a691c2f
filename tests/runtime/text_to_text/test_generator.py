"""A generator of texts over an encoder and a writer whose outputs are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tokenizers

from optc.errors import RequestError
from optc.runtime.text_to_text.conventions import TextConventions
from optc.runtime.text_to_text.generator import GeneratedText, TextToTextGenerator
from optc.runtime.text_to_text.params import TextToTextParams
from optc.runtime.text_to_text.rules import Rules
from optc.runtime.text_to_text.writer import Reads, Written

END, GERMAN, FRENCH = 1, 8, 9
WORDS = {"<pad>": 0, "</s>": END, "a": 2, "b": 3, "c": 4, "?": 5, "<deu>": GERMAN, "<fra>": FRENCH}


class Encoder:
    """Gives its ids back."""

    batch_invariant = False

    def __init__(self) -> None:
        self.closed = False

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"states": inputs["input_ids"]}

    def close(self) -> None:
        self.closed = True


class Copier:
    """Writes what was read, and an end behind it where there is room."""

    def __init__(self) -> None:
        self.closed = False
        self.asked: list[tuple[Mapping[str, Any], Rules, TextToTextParams]] = []

    def write(
        self, sources: Sequence[Sequence[int]], read: Reads, rules: Rules, how: TextToTextParams
    ) -> list[Written]:
        self.asked.append((read(sources), rules, how))
        found = [[one for one in row if one != END] for row in sources]
        return [
            Written([*row, END], True)
            if len(row) < rules.most
            else Written(row[: rules.most], False)
            for row in found
        ]

    def likeliest(
        self, source: Sequence[int], tokens: Sequence[int], read: Reads, rules: Rules
    ) -> list[int]:
        return [*source, *tokens, rules.start]

    def close(self) -> None:
        self.closed = True


def words() -> tokenizers.Tokenizer:
    """An end stands behind each text, and its language before it."""
    found = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="?"))
    found.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = [one for one in WORDS if len(one) > 1]
    found.add_special_tokens([tokenizers.AddedToken(one, special=True) for one in special])
    return found


def generator(**conventions: Any) -> tuple[TextToTextGenerator, Copier, Encoder]:
    known = TextConventions(**{"start": 0, "ends": (END,), **conventions})
    writer, encoder = Copier(), Encoder()
    return TextToTextGenerator(encoder, writer, known, words(), {"name": "copier"}), writer, encoder


def test_texts_in_their_order_without_start_end_and_special_tokens() -> None:
    made, writer, _ = generator()
    first, second = made.generate(["<deu> a b </s>", "c </s>"])
    assert (str(first), first.tokens, first.ended) == ("a b", (GERMAN, 2, 3), True)
    assert (second.text, second.tokens, second.ended) == ("c", (4,), True)
    read, rules, how = writer.asked[0]
    assert read["states"].tolist() == [[GERMAN, 2, 3, END], [4, END, END, END]]
    assert read["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert read["attention_mask"].dtype == read["states"].dtype == np.int64
    assert (rules.start, rules.first, rules.most) == (0, None, 256)
    assert how == TextToTextParams()


def test_one_text_may_stand_alone_and_may_be_cut_off() -> None:
    made, _, _ = generator()
    (one,) = made.generate("a b c", max_tokens=2)
    assert (one.text, one.tokens, one.ended) == ("a b", (2, 3), False)


def test_the_most_tokens_of_a_text() -> None:
    """What the model states, at most as many as its decoder has positions; more is refused."""
    for most, positions, expected in [(5, 9, 5), (9, 5, 5)]:
        made, writer, _ = generator(most_tokens=most, positions=positions)
        made.generate("a")
        assert writer.asked[0][1].most == expected
    made, writer, _ = generator(most_tokens=5, positions=9)
    made.generate("a", max_tokens=9)
    assert writer.asked[0][1].most == 9
    with pytest.raises(RequestError, match="writes 9 tokens of a text at most, not 10"):
        made.generate("a", max_tokens=10)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["a", 3], "texts: texts are no list of texts"),
        ([b"a"], "texts: texts are no list of texts"),
        (["a", ""], "text 1: it has no tokens"),
        (["a b c", "a a a a"], "text 1: it has 4 tokens, and the model reads 3"),
    ],
)
def test_texts_that_are_not_read(texts: Any, found: str) -> None:
    made, writer, _ = generator(source=3)
    with pytest.raises(RequestError, match=found):
        made.generate(texts)
    assert not writer.asked


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a b c </s>", [2, 3, END]),
        ("a b c a <deu> </s>", [2, GERMAN, END]),
        ("a b c a", [2, 3, 4]),
        ("</s> </s> </s> </s>", [END, END, END]),
        ("a b </s>", [2, 3, END]),
    ],
)
def test_what_is_too_long_is_cut_before_what_ends_it(text: str, kept: list[int]) -> None:
    made, writer, _ = generator(source=3, languages={"deu": GERMAN})
    made.generate(text, truncate=True)
    assert writer.asked[0][0]["states"].tolist() == [kept]


def test_the_language_of_a_text_takes_the_place_of_the_tokenizer_s() -> None:
    made, writer, _ = generator(languages={"deu": GERMAN, "fra": FRENCH})
    made.generate("<deu> a </s>", source_language="fra")
    assert writer.asked[0][0]["states"].tolist() == [[FRENCH, 2, END]]
    with pytest.raises(RequestError, match="source_language: the model does not know 'eng'"):
        made.generate("a", source_language="eng")


def test_the_language_to_write_is_the_first_token() -> None:
    made, writer, _ = generator(languages={"deu": GERMAN, "fra": FRENCH})
    made.generate("a", target_language="fra")
    assert (writer.asked[0][1].start, writer.asked[0][1].first) == (0, FRENCH)


def test_likeliest_tokens_come_from_the_writer_with_the_text_as_generate_reads_it() -> None:
    made, _, _ = generator(languages={"deu": GERMAN, "fra": FRENCH})
    (text,) = made.generate("b")
    found = made.likeliest("<deu> a", text, source_language="fra", target_language="deu")
    assert found == [FRENCH, 2, 3, 0]


def test_a_closed_generator_has_closed_its_engines_and_says_so() -> None:
    made, writer, encoder = generator()
    with made as same:
        assert same is made
    assert writer.closed
    assert encoder.closed
    text = GeneratedText("a", (2,), True)
    for ask in (lambda: made.generate("a"), lambda: made.likeliest("a", text)):
        with pytest.raises(RequestError, match="the engine is closed"):
            ask()
    made.close()
