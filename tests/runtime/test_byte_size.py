from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.runtime.byte_size import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("7B", 7),
        ("3k", 3 * 1024),
        ("3KB", 3 * 1024),
        ("1.5 MiB", 1024 * 1536),
        (" 2G ", 2 * 1024**3),
        ("1TiB", 1024**4),
        ("0.3", 0),
    ],
)
def test_units_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "1PiB", "1e9", "-1", "1.G", "1 2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_bytes(text)
    assert str(caught.value) == f"kv_memory: {text!r} is not a size (for example 2GiB)"
