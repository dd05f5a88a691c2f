from __future__ import annotations

import json
from pathlib import Path

import pytest

from optc.errors import InputError
from optc.runtime.receipts.log_file import read_receipts
from tests.runtime.receipts.test_receipt import RECEIPT

LINE = json.dumps(RECEIPT.to_json())


def test_lines_have_numbers_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(f"{LINE}\n\n{LINE}\n{LINE[:40]}")
    assert [number for number, _ in read_receipts(path)] == [1, 3]


def test_what_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.raises(InputError, match="cannot be read: No such file"):
        list(read_receipts(path))
    path.write_bytes(b"\xff\n")
    with pytest.raises(InputError, match="cannot be read"):
        list(read_receipts(path))
    path.write_text(f"{LINE}\nwords\n")
    with pytest.raises(InputError, match=f"{path}:2: is not JSON"):
        list(read_receipts(path))
