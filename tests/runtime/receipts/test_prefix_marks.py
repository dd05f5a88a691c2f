"""Marks of prefixes: where two texts part."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optc.runtime.receipts.prefix_marks import PrefixMarks

IDS = st.lists(st.integers(0, 300_000), max_size=30)


@given(IDS, IDS)
def test_texts_part_at_their_first_difference(first: list[int], second: list[int]) -> None:
    pairs = enumerate(zip(first, second, strict=False))
    parting = next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))
    found = PrefixMarks.of(first).parting(PrefixMarks.of(second))
    assert found == (None if first == second else parting)


@given(IDS)
def test_they_survive_json(ids: list[int]) -> None:
    marks = PrefixMarks.of(ids)
    assert marks.tokens == len(ids)
    assert PrefixMarks.from_json(**marks.to_json()) == marks


def test_the_hash_is_that_of_32_bit_integers() -> None:
    marks = PrefixMarks.of([1, 258])
    assert marks.sha256 == hashlib.sha256(b"\1\0\0\0\2\1\0\0").hexdigest()
    assert marks.marks[:2] == hashlib.sha256(b"\1\0\0\0").digest()[:2]
    assert marks.marks[2:] == bytes.fromhex(marks.sha256)[:2]


@pytest.mark.parametrize(
    ("sha256", "marks"), [("ab" * 32, "!"), ("ab" * 32, "AA=="), ("ab", "AAA="), ("x" * 64, "AAA=")]
)
def test_what_is_no_mark(sha256: str, marks: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds; the reader says where
        PrefixMarks.from_json(sha256, marks)
