"""The rate of a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from optc.system.hardware import disk
from optc.system.hardware.disk import read_rates


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(disk, "_LEAST", 1 << 20)
    monkeypatch.setattr(disk, "_READ", 1 << 18)
    (tmp_path / "file").write_bytes(os.urandom((1 << 20) + 5))
    return tmp_path / "file"


def test_each_number_of_readers_has_a_rate(large: Path) -> None:
    rates = read_rates(large, 0.01)
    if not rates:
        pytest.skip("this file system has no direct reads")
    assert len(rates) == len(disk._READERS)
    assert all(rate > 0 for rate in rates)


def test_small_files_and_those_that_cannot_be_read_say_nothing(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_rates(tmp_path / "none") == []
    monkeypatch.setattr(disk, "_LEAST", 1 << 30)
    assert read_rates(large) == []


def test_file_systems_without_direct_reads_say_nothing(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "preadv", refuse)
    assert read_rates(large, 0.01) == []
    monkeypatch.setattr(os, "open", refuse)
    assert read_rates(large, 0.01) == []
    monkeypatch.delattr(os, "O_DIRECT")
    assert read_rates(large, 0.01) == []
