"""Files that a command writes: checked first, and whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.cli.files.output_file import check_output, write_output
from optc.errors import InputError


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    path.write_text("old")
    check_output(path, (".html",), "-o")
    assert write_output(path, "née") == 4
    assert path.read_bytes() == "née".encode()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a", "a.svg", ".html"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"does not end in \.html"):
        check_output(tmp_path / name, (".html",), "-o")


def test_an_old_file_stays_where_the_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.html"
    path.write_text("old")

    def broken(self: Path, target: Path) -> Path:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(InputError, match="cannot be written: Input/output error"):
        write_output(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
