"""Reading the JSON files of a model folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.errors import InputError
from optc.importer.json_file import read_object
from optc.system.safe_json import MAX_BYTES


def test_an_object_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": [1e999]}')
    assert read_object(file, finite=False) == {"a": [float("inf")]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable as JSON"),
        ("[]", "not a JSON object"),
        ('{"a": [1e999]}', "the number 1e999 is too large"),
        ("[" * 100_000, "nested more than"),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_object_names_the_file(text: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_object(file, hint="get it again")
    assert (caught.value.where, caught.value.hint) == (str(file), "get it again")


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.json"
    with file.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="it has 268435457 bytes, more than"):
        read_object(file)
