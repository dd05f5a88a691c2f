"""Lists of tokens: written, read again, and refused where they are damaged."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from optc.errors import InputError
from optc.ir.vocabulary import KEPT_IDS, digest_ids, read_ids, write_ids


def test_a_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_ids(tmp_path, range(0, 3000, 7))
    assert read_ids(tmp_path) == list(range(0, 3000, 7))


def test_the_digest_is_of_64_bit_integers() -> None:
    assert (
        digest_ids([0, 3, 1 << 20]) == hashlib.sha256(struct.pack("<3q", 0, 3, 1 << 20)).hexdigest()
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[0,1", "cannot read the vocabulary"),
        ("{}", "is no list of ids"),
        ("[]", "is no list of ids"),
        ("[0,true]", "is no list of ids"),
        ("[0,1.5]", "is no list of ids"),
        ("[-1,2]", "its ids do not ascend"),
        ("[0,2,2]", "its ids do not ascend"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / KEPT_IDS).write_text(content)
    with pytest.raises(InputError, match=problem) as caught:
        read_ids(tmp_path)
    assert caught.value.where == str(tmp_path / KEPT_IDS)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the vocabulary"):
        read_ids(tmp_path)
