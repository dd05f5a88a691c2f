"""Text comes out in whole characters, adds up to the decoded whole, and stops where it must."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.runtime.text.detokenize import Detokenizer, TextStream
from optc.runtime.text.tokenizer import Tokenizer
from tests.runtime.support.texts import REAL, TEXTS, byte_fallback, byte_level, real_tokenizer

BYTES = Tokenizer(byte_level())
FALLBACK = Tokenizer(byte_fallback())
SETTINGS = settings(deadline=None, derandomize=True, max_examples=80)


def pieces(tokenizer: Tokenizer, prompt: list[int], output: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer.decode, prompt)
    return [*(detokenizer.add(token) for token in output), detokenizer.finish()]


def stream(tokenizer: Tokenizer, stop: list[str]) -> TextStream:
    return TextStream(Detokenizer(tokenizer.decode, []), stop)


@pytest.mark.parametrize("tokenizer", [BYTES, FALLBACK], ids=["bytes", "fallback"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("cut", [0, 5])
def test_pieces_add_up_and_hold_whole_characters(tokenizer: Tokenizer, text: str, cut: int) -> None:
    ids = tokenizer.encode(text)
    while tokenizer.decode(ids[:cut]).endswith("\ufffd"):
        cut += 1  # the prompt ends with a whole character
    got = pieces(tokenizer, ids[:cut], ids[cut:])
    assert tokenizer.decode(ids[:cut]) + "".join(got) == tokenizer.decode(ids)
    assert not any("\ufffd" in piece for piece in got)


@pytest.mark.parametrize("name", REAL)
def test_pieces_add_up_with_real_tokenizers(name: str) -> None:
    tokenizer = real_tokenizer(name)
    ids = [token for text in TEXTS for token in tokenizer.encode(text, add_special_tokens=False)]
    whole = tokenizer.decode(ids)
    got = pieces(tokenizer, [], ids)
    assert "".join(got) == whole


def test_a_character_shows_with_its_last_byte() -> None:
    ids = BYTES.encode("a€b")
    assert pieces(BYTES, [], ids) == ["a", "", "", "€", "b", ""]


def test_an_unfinished_character_shows_at_the_end_only() -> None:
    ids = BYTES.encode("a€")[:-1]
    assert pieces(BYTES, [], ids) == ["a", "", "", "\ufffd"]


@pytest.mark.parametrize("tokenizer", [BYTES, FALLBACK], ids=["bytes", "fallback"])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_no_tokens_are_no_text_wherever_the_prompt_ends(tokenizer: Tokenizer, cut: int) -> None:
    prompt = tokenizer.encode("a🙂")[:-cut]
    assert pieces(tokenizer, prompt, []) == [""]


def test_an_output_may_complete_a_character_of_the_prompt() -> None:
    ids = BYTES.encode("x€y")
    assert pieces(BYTES, ids[:2], ids[2:]) == ["", "€", "y", ""]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_prompt_may_end_anywhere_in_a_character(cut: int) -> None:
    ids = BYTES.encode("xyz🙂y")
    missing = 4 - cut
    got = pieces(BYTES, ids[: 3 + cut], ids[3 + cut :])
    assert got == [""] * (missing - 1) + ["🙂", "y", ""]


def test_the_first_space_of_an_output_stays() -> None:
    ids = FALLBACK.encode("ab cd")
    at = FALLBACK.encode("ab")
    assert "".join(pieces(FALLBACK, at, ids[len(at) :])) == " cd"
    # The same after a special token in the output, which shows no text.
    assert "".join(pieces(FALLBACK, at, [2, *ids[len(at) :]])) == " cd"


@SETTINGS
@given(st.lists(st.integers(0, 258), max_size=150))
def test_any_bytes_add_up(ids: list[int]) -> None:
    """Garbage too; only 64 tokens without an end of character would be cut."""
    assert "".join(pieces(BYTES, [], ids)) == BYTES.decode(ids)


def test_endless_garbage_keeps_the_window_short() -> None:
    seen: list[int] = []

    def decode(ids: object) -> str:
        seen.append(len(ids))  # type: ignore[arg-type]
        return BYTES.decode(ids)  # type: ignore[arg-type]

    detokenizer = Detokenizer(decode, [])
    first = BYTES.encode("€")[0]
    text = "".join(detokenizer.add(first) for _ in range(1000)) + detokenizer.finish()
    assert set(text) == {"\ufffd"}
    assert len(text) == 1000
    assert max(seen) <= 64


@pytest.mark.parametrize(
    ("stop", "text", "shown"),
    [
        (["STOP"], "abSTOPcd", "ab"),
        (["STOP"], "abSTOcd", "abSTOcd"),
        (["ll", "llo w"], "hello world", "he"),
        (["o w", "wor"], "hello world", "hell"),
        (["aab"], "aaaab", "aa"),
        (["€"], "10 € more", "10 "),
        (["x"], "abc", "abc"),
        (["abc"], "ab", "ab"),
    ],
)
def test_stop_strings_cut_across_tokens(stop: list[str], text: str, shown: str) -> None:
    whole = stream(BYTES, stop)
    got = ""
    for token in BYTES.encode(text):
        got += whole.add(token)
        assert shown.startswith(got), "text of a stop string was shown"
        if whole.stopped:
            break
    got += whole.finish()
    assert got == whole.text == shown
    assert whole.stopped == (shown != text)


def test_only_what_may_be_a_stop_string_is_held_back() -> None:
    whole = stream(BYTES, ["\n\n", "end"])
    assert [whole.add(token) for token in BYTES.encode("a\nbene")] == [
        "a",
        "",
        "\nb",
        "",
        "",
        "en",
    ]
    assert whole.finish() == "e"


@SETTINGS
@given(
    text=st.text(alphabet="ab€", max_size=30),
    stop=st.lists(st.text(alphabet="ab€", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_streams_stop_at_the_first_stop_string_that_is_complete(text: str, stop: list[str]) -> None:
    whole = stream(BYTES, stop)
    for token in BYTES.encode(text):
        whole.add(token)
        if whole.stopped:
            break
    whole.finish()
    ends = [text.find(s) + len(s) for s in stop if s in text]
    if not ends:
        assert (whole.stopped, whole.text) == (False, text)
    else:
        seen = text[: min(ends)]
        assert whole.stopped
        assert whole.text == seen[: min(seen.find(s) for s in stop if s in seen)]


def test_what_is_left_is_given_once() -> None:
    detokenizer = Detokenizer(BYTES.decode, [])
    for token in BYTES.encode("a€")[:-1]:
        detokenizer.add(token)
    assert [detokenizer.finish(), detokenizer.finish()] == ["\ufffd", ""]


def test_tokenizers_of_trained_models_are_in_the_repository() -> None:
    """So that a plain clone skips nothing."""
    assert set(REAL) == {"pycode", "stories260K", "phi-2", "t5-small"}
