from __future__ import annotations

import pytest

from optc.errors import InputError
from optc.system.units import parse_bytes, parse_memory


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2 << 30),
        ("2GB", 2 * 10**9),
        ("2G", 2 << 30),
        ("512M", 512 << 20),
        ("512m", 512 << 20),
        ("1.5 kb", 1500),
        ("1.5KiB", 1536),
        ("2.5GiB", 5 << 29),
        ("3TiB", 3 << 40),
        ("3TB", 3 * 10**12),
        ("1T", 1 << 40),
        ("1000000", 1000000),
        ("7B", 7),
        (" 1 ", 1),
        ("9" * 400, int("9" * 400)),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text, "kv_memory") == size


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "GB", "-1G", "0", "0.5", "0GB", "2 GiB x", "two", "1XB", "nan", "1e999", "1iB"],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(InputError, match="is not a size") as caught:
        parse_bytes(text, "--max-ram")
    assert caught.value.where == "--max-ram"
    assert "K, M, G are powers of 1024, KB, MB, GB of 1000" in caught.value.hint


@pytest.mark.parametrize("size", ["4", " 4 ", "16", "0.5e", 4, 1000, "1023"])
def test_an_amount_of_memory_has_a_unit(size: str | int) -> None:
    with pytest.raises(InputError) as caught:
        parse_memory(size, "--max-ram")
    assert caught.value.where == "--max-ram"
    if size != "0.5e":
        assert f"{size} without a unit is {int(size)} B, in which nothing fits" in str(caught.value)
        assert f"write the unit, such as {str(size).strip()}GiB" in caught.value.hint


def test_amounts_of_memory() -> None:
    found = [parse_memory(one, "") for one in ("4GiB", "500000000", "7B", "0.5K", 1 << 30)]
    assert found == [4 << 30, 500000000, 7, 512, 1 << 30]
