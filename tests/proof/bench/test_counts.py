"""Lists of numbers of requests at once."""

from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.proof.bench.counts import parse_counts


def test_counts() -> None:
    assert parse_counts("1") == [1]
    assert parse_counts("1,8, 16") == [1, 8, 16]


@pytest.mark.parametrize("text", ["", "0", "1,-1", "1,x", "1,,2"])
def test_what_is_no_list_of_counts(text: str) -> None:
    with pytest.raises(InputError, match=r"is no list of counts \(for example 1,8,16\)"):
        parse_counts(text)
